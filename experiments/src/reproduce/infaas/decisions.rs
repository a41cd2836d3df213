//! How long does it take to choose a variant and a worker for a query (INFaaS section 6.4)?

use crate::bench::serving::{ChoiceTimes, choice_times};
use crate::reproduce::lab::Lab;
use crate::reproduce::report::{Claim, ClaimVerdict, Plot, Report, Series, TitledTable};
use apportion_support::exit::Failure;
use apportion_support::output::{TextTable, number};

/// INFaaS section 6.4: how long it takes to choose a variant and a worker for a query.
pub fn decisions(lab: &Lab) -> Result<Report, Failure> {
    lab.show_step("infaas-decisions");
    let states = [("active", 0.3), ("overloaded", 1.5)];
    let mut table = TextTable::new(&["the variants that fit are", "choice us", "search of everything us", "times faster"]);
    let mut factors = Vec::new();
    let series = |name: &str| Series { name: name.into(), points: vec![] };
    let mut series = vec![series("choice"), series("search of everything")];
    for (at, (state, load)) in states.into_iter().enumerate() {
        let ChoiceTimes { choice_us: choice, search_us: search } = choice_times(load);
        series[0].points.push((at as f64, choice));
        series[1].points.push((at as f64, search));
        factors.push(search / choice);
        table.row(vec![state.into(), number(choice), number(search), number(search / choice)]);
    }
    Ok(Report {
        name: "infaas-decisions",
        title: "Choosing a variant and a worker for a query that names neither",
        source: "INFaaS, section 6.4",
        method: "175 variants of one application, 160 replicas on 40 machines; queries ask for random accuracies and \
                 latencies. Times \
                 are this machine's."
            .into(),
        claims: vec![Claim {
            claimed: "Choices take 2.2 ms (active) and 3.5 ms (else), up to 44 times faster than a brute-force search"
                .into(),
            seen: format!("{} and {} times faster than a search of everything", number(factors[0]), number(factors[1])),
            verdict: ClaimVerdict::of(factors[0] >= 44.0),
            why: "The paper's choice asks a database over the network. Ours reads tables in memory, which are as old as \
                  the last reports. The compared search is in memory too."
                .into(),
        }],
        tables: vec![TitledTable { title: "Decision times".into(), table }],
        plots: vec![Plot {
            title: "Time to choose".into(),
            x: "the variants that fit are".into(),
            y: "us".into(),
            series,
            places: states.iter().map(|(state, _)| (*state).to_owned()).collect(),
        }],
    })
}
