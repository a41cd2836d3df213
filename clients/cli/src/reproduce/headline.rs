//! Our own headline: cost at equal attainment against what users run today on each stage, HPA target tracking and Ray Serve's
//! autoscaler, on real traces.
use super::contest::{Contest, Point, Scaler, cloud};
use super::lab::{Lab, rate_quantile, scaled};
use super::report::Report;
use crate::exit::Failure;
use crate::input;
use apportion_domain::{Batching, Dropping};

pub fn report(lab: &Lab) -> Result<Report, Failure> {
    let env = |k: &str, d: &str| std::env::var(k).unwrap_or(d.into());
    let day = lab.rates(&lab.data_file(&env("TRACE", "traces/ipa_twitter_day1.csv")).unwrap(), Some("qps"), 86400)?;
    let (from, to): (usize, usize) = (env("FROM", "14400").parse().unwrap(), env("TO", "16200").parse().unwrap());
    let mean: f64 = env("MEAN", "50").parse().unwrap();
    let quantile: f64 = env("Q", "0.5").parse().unwrap();
    let file = env("FILE", "loki_traffic_00");
    let p = input::problem(&lab.data_file(&format!("problems/{file}.json")).unwrap().display().to_string())?;
    let dropping = Dropping::from_name_or_alias(&env("DROP", "per_task")).unwrap();
    let batching = Batching::from_name(&env("BATCH", "at_start")).unwrap();
    let p = cloud(&p, (batching, dropping))?;
    let part = scaled(&day[from..to.min(day.len())], mean);
    let planned = rate_quantile(&part, quantile);
    let k = mean / (day[from..to.min(day.len())].iter().sum::<f64>() / (to.min(day.len()) - from) as f64);
    let sfrom: usize = env("SFROM", "13500").parse().unwrap();
    let sample: Vec<f64> = day[sfrom..sfrom + 300].iter().map(|q| q * k).collect();
    eprintln!(
        "sample mean {:.1} max {:.1}",
        sample.iter().sum::<f64>() / 300.0,
        sample.iter().copied().fold(0.0, f64::max)
    );
    let start = std::time::Instant::now();
    let Some(c) = Contest::new(lab, file.clone(), &p, planned, &sample, &part)? else {
        eprintln!("{file}: no plan");
        std::process::exit(1)
    };
    eprintln!(
        "\n{file} {dropping:?} planned {planned:.0} plan in {:?}: {:?} cost {}",
        start.elapsed(),
        c.plan().pipelines[0]
            .assignments
            .iter()
            .map(|a| format!("{} b{} n{}", a.group, a.batch, a.replicas))
            .collect::<Vec<_>>(),
        c.plan().cost_per_hour
    );
    let start = std::time::Instant::now();
    let mut all: Vec<Scaler> = [0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 1.0, 1.3].map(Scaler::Tuner).to_vec();
    all.extend([0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8].map(|t| Scaler::Hpa(t, 0.0)));
    all.extend([0.5, 1.0, 2.0, 4.0].map(|t| Scaler::Ray(t, 0.0)));
    all.extend([1.0, 2.0, 3.0, 4.0, 5.0].map(Scaler::Fixed));
    let n = std::sync::Mutex::new(all.clone().into_iter().rev().collect::<Vec<_>>());
    let out = std::sync::Mutex::new(vec![]);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let Some(x) = n.lock().unwrap().pop() else { break };
                    let r = c.run(x);
                    out.lock().unwrap().push((x, r));
                }
            });
        }
    });
    let out = out.into_inner().unwrap();
    for x in all {
        if let Some((_, Ok(p))) = out.iter().find(|o| o.0 == x) {
            eprintln!(
                "  {x:?} att {:.4} cost {:.2} util {:.2} changes {}",
                p.attainment, p.cost_per_hour, p.utilisation, p.changes
            );
        }
    }
    eprintln!("  took {:?}", start.elapsed());
    std::process::exit(0)
}
