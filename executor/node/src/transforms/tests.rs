use super::boxes::{ScoredBox, kept, overlap};
use super::numbers::{floats, of_floats, of_int64s};
use super::rows::RowSet;
use super::run::apply;
use super::{GlueFault, TransformFault, pictures, run_after, run_before};
use crate::tensor::{Datatype, Tensor, TensorSignature, holds, int64s, texts};
use apportion_domain::transform::{
    BoxForm, CastStep, CropStep, DecodeTextStep, EdgeGlue, KeepStep, LetterCase, NmsStep, NormaliseStep, PARENT, PadStep,
    PictureFit, PictureSize, PixelLayout, ResizeStep, SliceStep, TaskGlue, TextDecoding, TokeniseStep, Transform,
    TransposeStep, Vocabulary, WordSplit,
};
use proptest::prelude::*;

fn named(name: &str) -> String {
    name.to_owned()
}

fn list(texts: &[&str]) -> Vocabulary {
    Vocabulary::new(texts.iter().map(|text| named(text)).collect())
}

fn bytes(name: &str, values: &[&str]) -> Tensor {
    let each = |text: &&str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let data: Vec<u8> = values.iter().flat_map(each).collect();
    Tensor { name: named(name), datatype: Datatype::Bytes, shape: vec![values.len()], data: data.into() }
}

fn read_texts(tensor: &Tensor) -> Vec<String> {
    texts(&tensor.data).map(|text| String::from_utf8_lossy(text.expect("whole")).into_owned()).collect()
}

/// The tensors after one transform of these.
fn after(transform: &Transform, inputs: &[Tensor]) -> Result<RowSet, TransformFault> {
    let mut rows = RowSet::of(inputs)?;
    apply(transform, &mut rows)?;
    Ok(rows)
}

fn resize(size: [u32; 2], fit: PictureFit, layout: PixelLayout) -> ResizeStep {
    let size = PictureSize { height: size[0], width: size[1] };
    ResizeStep { of: named("x"), to: named("y"), size, fit, fill: 7.0, layout }
}

/// Where pixel (y, x) of a channel is in a picture `[channels, height, width]` or `[height, width, channels]`.
fn place(layout: PixelLayout, size: [usize; 3], at: [usize; 3]) -> usize {
    let ([height, width, channels], [y, x, channel]) = (size, at);
    match layout {
        PixelLayout::ChannelsFirst => (channel * height + y) * width + x,
        PixelLayout::ChannelsLast => (y * width + x) * channels + channel,
    }
}

/// The direct formula in double precision: each new pixel is the weighted mean of four old ones.
fn bilinear(value: impl Fn(usize, usize) -> f64, had: [usize; 2], made: [usize; 2], at: [usize; 2]) -> f64 {
    let middle = |axis: usize| {
        let at = (at[axis] as f64 + 0.5) * had[axis] as f64 / made[axis] as f64 - 0.5;
        at.clamp(0.0, had[axis] as f64 - 1.0)
    };
    let mut sum = 0.0;
    for y in 0..had[0] {
        for x in 0..had[1] {
            let weight = |axis: usize, at: usize| (1.0 - (middle(axis) - at as f64).abs()).max(0.0);
            sum += weight(0, y) * weight(1, x) * value(y, x);
        }
    }
    sum
}

proptest! {
    #[test]
    fn resizing_follows_the_direct_formula(
        had in [1usize..9, 1..9],
        made in [1u32..12, 1..12],
        channels in 1usize..4,
        is_last in any::<bool>(),
        seed in 0u32..1000,
    ) {
        let layout = if is_last { PixelLayout::ChannelsLast } else { PixelLayout::ChannelsFirst };
        let count = 2 * had[0] * had[1] * channels;
        let pixels: Vec<u8> = (0..count as u32).map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let shape = match layout {
            PixelLayout::ChannelsFirst => vec![2, channels, had[0], had[1]],
            PixelLayout::ChannelsLast => vec![2, had[0], had[1], channels],
        };
        let data = pixels.clone().into();
        let whole = Tensor { name: named("x"), datatype: Datatype::Uint8, shape: shape.clone(), data };
        let real = of_floats("x", shape, &pixels.iter().map(|p| f32::from(*p)).collect::<Vec<_>>());
        let step = resize(made, PictureFit::Stretch, layout);
        let resized = floats(&pictures::resize(&step, &real).expect("fits"));
        let rounded = floats(&pictures::resize(&step, &whole).expect("fits"));
        let made = made.map(|side| side as usize);
        for row in 0..2 {
            for y in 0..made[0] {
                for x in 0..made[1] {
                    for channel in 0..channels {
                        let old = |y, x| {
                            let at = place(layout, [had[0], had[1], channels], [y, x, channel]);
                            f64::from(pixels[row * had[0] * had[1] * channels + at])
                        };
                        let expected = bilinear(old, had, made, [y, x]);
                        let at = place(layout, [made[0], made[1], channels], [y, x, channel]);
                        let at = row * made[0] * made[1] * channels + at;
                        prop_assert!((f64::from(resized[at]) - expected).abs() < 1e-2, "{} {expected}", resized[at]);
                        prop_assert!((f64::from(rounded[at]) - expected).abs() < 0.51, "{} {expected}", rounded[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_crop_is_a_cut_that_is_resized(corners in proptest::array::uniform4(-3.0f32..12.0), odd in 0usize..6) {
        let mut corners = corners;
        if odd < 4 {
            corners[odd] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX][odd];
        }
        let (height, width) = (6usize, 9usize);
        let pixels: Vec<f32> = (0..height * width).map(|i| (i * 37 % 101) as f32).collect();
        let photo = of_floats("photo", vec![1, height, width], &pixels);
        let boxes = of_floats("boxes", vec![1, 4], &corners);
        let crop = CropStep {
            boxes: named("boxes"),
            of: named("photo"),
            to: named("patch"),
            size: PictureSize { height: 3, width: 5 },
            boxes_in: None,
            fit: PictureFit::Stretch,
            fill: 0.0,
            layout: PixelLayout::ChannelsFirst,
        };
        let rows = after(&Transform::Crop(crop), &[photo, boxes]).expect("boxes are never a fault");
        let [left, top, right, bottom] = corners;
        let is_finite = corners.iter().all(|corner| corner.is_finite());
        // The pixels that the box touches, one by one.
        let inside = |at: usize, from: f32, to: f32| (at as f32) < to && (at + 1) as f32 > from;
        let ys: Vec<usize> = (0..height).filter(|y| inside(*y, top, bottom)).collect();
        let xs: Vec<usize> = (0..width).filter(|x| inside(*x, left, right)).collect();
        if !is_finite || left >= right || top >= bottom || ys.is_empty() || xs.is_empty() {
            prop_assert_eq!(rows.rows(), 0);
        } else {
            let row_of = |y: &usize| {
                let row = &pixels[y * width..(y + 1) * width];
                xs.iter().map(move |x| row[*x])
            };
            let cut: Vec<f32> = ys.iter().flat_map(row_of).collect();
            let cut = of_floats("x", vec![1, ys.len(), xs.len()], &cut);
            let expected = pictures::resize(&resize([3, 5], PictureFit::Stretch, PixelLayout::ChannelsFirst), &cut);
            prop_assert_eq!(&rows.tensor("patch").data, &expected.expect("fits").data);
        }
    }

    #[test]
    fn kept_boxes_are_those_of_brute_force(
        boxes in proptest::collection::vec((0u8..6, 0u8..6, 0u8..4, 0u8..4), 0..12),
        scores in proptest::collection::vec(0u8..5, 24),
        iou in 0.0f64..1.0,
    ) {
        let corners = |b: &(u8, u8, u8, u8)| [b.0, b.1, b.0 + b.2, b.1 + b.3].map(f32::from);
        let boxes: Vec<[f32; 4]> = boxes.iter().map(corners).collect();
        let scores: Vec<f32> = scores[..2 * boxes.len()].iter().map(|score| f32::from(*score) / 4.0).collect();
        let step = suppression(iou, 0.3, 5);
        prop_assert_eq!(kept(&step, &boxes, &scores), brute_force(&step, &boxes, &scores));
    }

    #[test]
    fn moved_elements_are_found_by_their_indices(sizes in [1usize..4, 1..4, 1..4], from in 0u32..3, lengths in 3u32..6) {
        let count: usize = sizes.iter().product();
        let values: Vec<i64> = (0..2 * count as i64).collect();
        let of = of_int64s("x", vec![2, sizes[0], sizes[1], sizes[2]], &values);
        let at = |row: usize, a: usize, b: usize, c: usize| (((row * sizes[0] + a) * sizes[1] + b) * sizes[2] + c) as i64;
        let every = || (0..2).flat_map(move |r| (0..sizes[0]).map(move |a| (r, a)));

        let transpose = TransposeStep { of: named("x"), to: named("y"), axes: vec![3, 1, 2] };
        let rows = after(&Transform::Transpose(transpose), std::slice::from_ref(&of)).expect("an order");
        let expected: Vec<i64> = (0..2)
            .flat_map(|r| (0..sizes[2]).flat_map(move |c| (0..sizes[0]).flat_map(move |a| {
                (0..sizes[1]).map(move |b| at(r, a, b, c))
            })))
            .collect();
        prop_assert_eq!(int64s(rows.tensor("y")), Some(expected));

        let until = (from + 1).min(sizes[1] as u32);
        let slice = Transform::Slice(SliceStep { of: named("x"), to: named("y"), axis: 2, from, until });
        if from < until {
            let rows = after(&slice, std::slice::from_ref(&of)).expect("a part");
            let expected: Vec<i64> = every()
                .flat_map(|(r, a)| (0..sizes[2]).map(move |c| at(r, a, from as usize, c)))
                .collect();
            prop_assert_eq!(int64s(rows.tensor("y")), Some(expected));
        }

        let pad = PadStep { of: named("x"), to: named("y"), axis: 2, lengths: vec![lengths, 9], value: -1.0 };
        let rows = after(&Transform::Pad(pad), std::slice::from_ref(&of)).expect("longer");
        let expected: Vec<i64> = every()
            .flat_map(|(r, a)| (0..lengths as usize).flat_map(move |b| {
                (0..sizes[2]).map(move |c| if b < sizes[1] { at(r, a, b, c) } else { -1 })
            }))
            .collect();
        prop_assert_eq!(int64s(rows.tensor("y")), Some(expected));
    }

    #[test]
    fn any_tensors_give_the_checked_types_or_a_fault(
        data in proptest::collection::vec(any::<u8>(), 0..96),
        shapes in proptest::collection::vec(proptest::collection::vec(0usize..5, 1..5), 2),
        rows in 0usize..3,
        kind in 0usize..14,
        other in 0usize..14,
    ) {
        let tensor = |name: &str, datatype: Datatype, shape: &[usize]| {
            let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().skip(1).copied()).collect();
            let size = shape.iter().product::<usize>() * datatype.size();
            let data: Vec<u8> = data.iter().copied().chain(std::iter::repeat(0)).take(size).collect();
            let tensor = Tensor { name: named(name), datatype, shape, data: data.into() };
            holds(&tensor.data, &tensor.shape, datatype).is_ok().then_some(tensor)
        };
        let inputs = [tensor("x", Datatype::ALL[kind], &shapes[0]), tensor("b", Datatype::ALL[other], &shapes[1])];
        let Some(inputs) = inputs.into_iter().collect::<Option<Vec<Tensor>>>() else { return Ok(()) };
        for transform in every_transform() {
            let mut types = RowSet::of(&inputs).expect("they hold").types();
            let checked = transform.check_types(&mut types);
            let found = after(&transform, &inputs);
            prop_assert!(checked.is_ok() || found.is_err(), "{transform:?}: a wrong type is a fault");
            let Ok(found) = found else { continue };
            let made = found.types();
            prop_assert_eq!(made.keys().collect::<Vec<_>>(), types.keys().collect::<Vec<_>>());
            prop_assert!(made.iter().all(|(name, made)| made.fits(&types[name])), "{transform:?}: {made:?} {types:?}");
            for name in made.keys() {
                let all = found.gathered(name).expect("small");
                prop_assert_eq!(all.rows(), found.rows());
                prop_assert_eq!(holds(&all.data, &all.shape, all.datatype), Ok(()));
            }
        }
    }
}

fn suppression(iou: f64, score_min: f64, keep_max: u32) -> NmsStep {
    let (boxes, scores, classes) = (named("b"), named("x"), named("classes"));
    NmsStep { boxes, scores, classes, form: BoxForm::Corners, iou, score_min, keep_max }
}

/// Takes the best box and strikes out all that overlap it, until none is left.
fn brute_force(step: &NmsStep, boxes: &[[f32; 4]], scores: &[f32]) -> Vec<ScoredBox> {
    let mut left: Vec<ScoredBox> = Vec::new();
    for (at, corners) in boxes.iter().enumerate() {
        let (one, two) = (scores[2 * at], scores[2 * at + 1]);
        let (class, score) = if two > one { (1, two) } else { (0, one) };
        if corners[0] < corners[2] && corners[1] < corners[3] && f64::from(score) >= step.score_min {
            left.push(ScoredBox { corners: *corners, score, class });
        }
    }
    let mut found = Vec::new();
    while found.len() < step.keep_max as usize && !left.is_empty() {
        let highest = left.iter().map(|b| b.score).fold(f32::MIN, f32::max);
        let at = left.iter().position(|b| b.score == highest).expect("one has it");
        let best = left.remove(at);
        left.retain(|b| b.class != best.class || overlap(&b.corners, &best.corners) <= step.iou);
        found.push(best);
    }
    found
}

fn tokenise(split: WordSplit, length: u32) -> TokeniseStep {
    let vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "you", "!", "are"];
    TokeniseStep {
        of: named("x"),
        to: named("ids"),
        mask: Some(named("mask")),
        types: Some(named("types")),
        vocabulary: list(&vocabulary),
        split,
        letters: LetterCase::Lower,
        unknown: named("[UNK]"),
        start: Some(named("[CLS]")),
        end: Some(named("[SEP]")),
        padding: named("[PAD]"),
        length,
    }
}

fn decode(decoding: TextDecoding) -> DecodeTextStep {
    DecodeTextStep { of: named("x"), to: named("text"), alphabet: list(&["a", "b", "cd"]), decoding, blank: 0 }
}

/// One of each kind, over the tensors `x` and `b`.
fn every_transform() -> Vec<Transform> {
    let size = PictureSize { height: 2, width: 3 };
    let (fit, layout) = (PictureFit::Contain, PixelLayout::ChannelsFirst);
    let (of, to) = (|| named("x"), || named("y"));
    let crop = |layout| {
        let boxes_in = Some(PictureSize { height: 4, width: 4 });
        Transform::Crop(CropStep { boxes: named("b"), of: of(), to: to(), size, boxes_in, fit, fill: 0.0, layout })
    };
    let mut none_is_blank = decode(TextDecoding::Argmax);
    none_is_blank.alphabet = list(&["a", "b"]);
    vec![
        crop(PixelLayout::ChannelsFirst),
        crop(PixelLayout::ChannelsLast),
        Transform::Resize(ResizeStep { of: of(), to: to(), size, fit, fill: 0.0, layout }),
        Transform::Pad(PadStep { of: of(), to: to(), axis: 2, lengths: vec![2, 4], value: 300.0 }),
        Transform::Normalise(NormaliseStep {
            of: of(),
            to: to(),
            scale: 0.5,
            mean: vec![0.1, 0.2],
            std: vec![0.3],
            axis: Some(1),
        }),
        Transform::Nms(suppression(0.5, 0.0, 3)),
        Transform::DecodeText(decode(TextDecoding::Ctc)),
        Transform::DecodeText(none_is_blank),
        Transform::Tokenise(tokenise(WordSplit::Wordpiece, 5)),
        Transform::Transpose(TransposeStep { of: of(), to: to(), axes: vec![2, 1] }),
        Transform::Cast(CastStep { of: of(), to: to(), datatype: Datatype::Fp16 }),
        Transform::Slice(SliceStep { of: of(), to: to(), axis: 1, from: 1, until: 3 }),
        Transform::Keep(KeepStep { tensors: vec![named("b")] }),
    ]
}

#[test]
fn a_contained_picture_keeps_its_proportions() {
    let of = of_floats("x", vec![1, 2, 4], &[1.0; 8]);
    let step = resize([4, 4], PictureFit::Contain, PixelLayout::ChannelsFirst);
    let made = floats(&pictures::resize(&step, &of).expect("fits"));
    assert_eq!(made[..8], [1.0; 8], "the upper half is the picture");
    assert_eq!(made[8..], [7.0; 8], "the rest is filled");
    let empty = of_floats("x", vec![1, 0, 4], &[]);
    assert_eq!(pictures::resize(&step, &empty), Err(TransformFault::NoPixels(named("x"))));
}

#[test]
fn a_full_size_crop_is_the_picture_itself() {
    let pixels: Vec<u8> = (0..=255).collect();
    let of = Tensor { name: named("x"), datatype: Datatype::Uint8, shape: vec![1, 16, 16], data: pixels.into() };
    let step = resize([16, 16], PictureFit::Stretch, PixelLayout::ChannelsFirst);
    assert_eq!(pictures::resize(&step, &of).expect("fits").data, of.data);
}

#[test]
fn texts_are_decoded_without_blanks_and_repeats() {
    let rows = |step: &DecodeTextStep, classes: &[i64], places: usize| {
        let of = of_int64s("x", vec![classes.len() / places, places], classes);
        after(&Transform::DecodeText(step.clone()), &[of]).map(|rows| read_texts(rows.tensor("text")))
    };
    let ctc = decode(TextDecoding::Ctc);
    assert_eq!(rows(&ctc, &[1, 1, 0, 1, 2, 0, 3, 3, 0, 0], 5), Ok(vec![named("aab"), named("cd")]));
    let last = DecodeTextStep { blank: 3, ..ctc.clone() };
    assert_eq!(rows(&last, &[0, 3, 0, 1, 2], 5), Ok(vec![named("aabcd")]));
    assert_eq!(rows(&decode(TextDecoding::Argmax), &[0, 0, 2], 3), Ok(vec![named("aacd")]));
    for wrong in [-1, 4, i64::MAX] {
        let fault = TransformFault::Class { name: named("x"), found: wrong, last: 3 };
        assert_eq!(rows(&ctc, &[wrong], 1), Err(fault));
    }
    let scores = of_floats("x", vec![1, 2, 4], &[0.1, 0.2, f32::NAN, 0.2, 0.9, f32::NAN, 0.0, 0.95]);
    let read = after(&Transform::DecodeText(ctc), &[scores]).map(|rows| read_texts(rows.tensor("text")));
    assert_eq!(read, Ok(vec![named("acd")]));
}

#[test]
fn words_become_pieces_of_the_vocabulary() {
    let rows = |step: TokeniseStep, text: &str| {
        let rows = after(&Transform::Tokenise(step), &[bytes("x", &[text])]).expect("a text");
        let read = |name: &str| int64s(rows.tensor(name)).expect("whole numbers");
        assert_eq!(read("types"), vec![0; read("ids").len()]);
        (read("ids"), read("mask"))
    };
    let wordpiece = |length| tokenise(WordSplit::Wordpiece, length);
    assert_eq!(rows(wordpiece(8), "You  unaffable!"), (vec![2, 7, 4, 5, 6, 8, 3, 0], vec![1, 1, 1, 1, 1, 1, 1, 0]));
    assert_eq!(rows(wordpiece(4), "you are unaffable"), (vec![2, 7, 9, 3], vec![1; 4]), "cut");
    assert_eq!(rows(wordpiece(5), "unx affable"), (vec![2, 1, 1, 3, 0], vec![1, 1, 1, 1, 0]));
    assert_eq!(rows(tokenise(WordSplit::Whitespace, 5), "you! are"), (vec![2, 1, 9, 3, 0], vec![1, 1, 1, 1, 0]));
    assert_eq!(rows(wordpiece(4), &"u".repeat(101)).0, [2, 1, 3, 0]);
    assert_eq!(rows(wordpiece(3), "").0, [2, 3, 0]);
}

#[test]
fn numbers_of_every_datatype_are_cast_and_kept_in_range() {
    let cast = |datatype, of: &Tensor| {
        let step = CastStep { of: named("x"), to: named("y"), datatype };
        after(&Transform::Cast(step), std::slice::from_ref(of)).expect("numbers").tensor("y").clone()
    };
    for datatype in Datatype::ALL.into_iter().filter(|d| *d != Datatype::Bytes) {
        let made = cast(datatype, &of_floats("x", vec![3], &[0.0, 1.0, 1.0]));
        assert_eq!(made.data.len(), 3 * datatype.size(), "{datatype:?}");
        let there = Tensor { name: named("x"), ..made };
        assert_eq!(floats(&cast(Datatype::Fp32, &there)), [0.0, 1.0, 1.0], "{datatype:?}");
    }
    let odd = of_floats("x", vec![5], &[-3.7, 300.2, f32::NAN, f32::INFINITY, 2.9]);
    assert_eq!(cast(Datatype::Uint8, &odd).data[..], [0, 255, 0, 255, 2]);
    assert_eq!(floats(&cast(Datatype::Int8, &odd)), [-3.0, 127.0, 0.0, 127.0, 2.0]);
    let large = of_int64s("x", vec![2], &[i64::MIN, i64::MAX]);
    assert_eq!(int64s(&cast(Datatype::Int64, &large)), Some(vec![i64::MIN, i64::MAX]), "exact");
    assert_eq!(floats(&cast(Datatype::Uint64, &large))[0], 0.0);
}

#[test]
fn channels_are_normalised_each_by_its_own_numbers() {
    let step = |axis, mean: &[f64], std: &[f64]| {
        let (of, to) = (named("x"), named("y"));
        Transform::Normalise(NormaliseStep { of, to, scale: 2.0, mean: mean.to_vec(), std: std.to_vec(), axis })
    };
    let of = Tensor { name: named("x"), datatype: Datatype::Uint8, shape: vec![1, 2, 2], data: vec![1, 2, 3, 4].into() };
    let made = |transform| floats(after(&transform, std::slice::from_ref(&of)).expect("numbers").tensor("y"));
    assert_eq!(made(step(None, &[1.0], &[0.5])), [2.0, 6.0, 10.0, 14.0]);
    assert_eq!(made(step(Some(1), &[0.0, 1.0], &[1.0])), [2.0, 4.0, 5.0, 7.0]);
    assert_eq!(made(step(Some(2), &[0.0], &[1.0, 4.0])), [2.0, 1.0, 6.0, 2.0]);
}

/// A detector whose photos are 8 x 8, with patches of 4 x 4 on its edge.
fn detector() -> TaskGlue {
    let crop = CropStep {
        boxes: named("b"),
        of: named("photo"),
        to: named("patch"),
        size: PictureSize { height: 4, width: 4 },
        boxes_in: None,
        fit: PictureFit::Stretch,
        fill: 0.0,
        layout: PixelLayout::ChannelsFirst,
    };
    let outputs = vec![named("patch"), named("b"), named("code")];
    let edges = vec![EdgeGlue { to: named("read"), steps: vec![Transform::Crop(crop)], outputs }];
    TaskGlue { before: Vec::new(), after: vec![Transform::Nms(suppression(0.5, 0.2, 9))], edges }
}

#[test]
fn rows_of_a_detector_know_their_photos() {
    let glue = detector();
    let photo = of_floats("photo", vec![2, 8, 8], &(0..128).map(|i| i as f32).collect::<Vec<_>>());
    let code = bytes("code", &["first", "second"]);
    let all = [0.0, 0.0, 4.0, 4.0, /* the same */ 0.0, 0.0, 4.0, 4.0, /* apart */ 4.0, 4.0, 8.0, 8.0];
    let boxes = of_floats("b", vec![2, 3, 4], &[all, all].concat());
    let scores = of_floats("x", vec![2, 3], &[0.5, 0.9, 0.3, 0.1, 0.1, 0.8]);
    let answers = glue.answers(["b", "x"].into_iter());
    let made = run_after(&glue, &answers, &[photo.clone(), code.clone()], vec![boxes, scores]).expect("a batch");
    let names: Vec<&str> = made.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names, ["read.patch", "read.b", "read.code", PARENT]);
    assert_eq!(int64s(&made[3]), Some(vec![0, 0, 1]));
    assert_eq!(read_texts(&made[2]), ["first", "first", "second"]);
    assert_eq!(floats(&made[1])[8..], [4.0, 4.0, 8.0, 8.0]);
    assert_eq!(floats(&made[0])[32..36], [100.0, 101.0, 102.0, 103.0], "row 4, column 4 of the second photo");

    // A detector that already makes rows says from which photos they come.
    let rows = || of_floats("b", vec![1, 4], &[0.0, 0.0, 8.0, 8.0]);
    let parent = |row: i64| of_int64s(PARENT, vec![1], &[row]);
    let plain = TaskGlue { after: Vec::new(), ..glue };
    let made = run_after(&plain, &answers, &[photo.clone(), code.clone()], vec![rows(), parent(1)]).expect("a batch");
    assert_eq!((int64s(&made[3]), read_texts(&made[2])), (Some(vec![1]), vec![named("second")]));
    let wrong = run_after(&plain, &answers, &[photo, code], vec![rows(), parent(2)]);
    assert_eq!(wrong, Err(GlueFault::Batch(TransformFault::Parent(2))));
}

#[test]
fn a_fault_names_its_transform_and_too_many_rows_are_refused() {
    let glue = detector();
    let photo = of_floats("photo", vec![1, 1, 1], &[1.0]);
    let count = super::GLUE_ROWS_MAX + 1;
    let boxes = of_floats("b", vec![1, count, 4], &[0.0, 0.0, 1.0, 1.0].repeat(count));
    let plain = TaskGlue { after: Vec::new(), ..glue.clone() };
    let code = bytes("code", &["only"]);
    let fault = run_after(&plain, &plain.answers(["b"].into_iter()), &[photo.clone(), code], vec![boxes.clone()]);
    assert!(matches!(&fault, Err(GlueFault::Step { cause, .. }) if **cause == TransformFault::Rows), "{fault:?}");
    let scores = of_floats("x", vec![1, 2], &[1.0, 1.0]);
    let fault = run_after(&glue, &glue.answers(["b", "x"].into_iter()), &[photo], vec![boxes, scores]);
    let said = fault.expect_err("other counts").to_string();
    assert!(said.starts_with("`after`: transform 1 (nms): x is FP32 [rows, 2]: expected FP32 [rows, boxes]"), "{said}");
}

#[test]
fn a_tensor_is_never_larger_than_its_bound() {
    let step = resize([4096, 4096], PictureFit::Stretch, PixelLayout::ChannelsLast);
    let of = of_floats("x", vec![1, 1, 1, 8], &[0.0; 8]);
    assert_eq!(pictures::resize(&step, &of), Err(TransformFault::Bytes(named("y"))));
    let cast = TaskGlue {
        before: vec![Transform::Cast(CastStep { of: named("x"), to: named("y"), datatype: Datatype::Fp64 })],
        ..TaskGlue::default()
    };
    let taken = [TensorSignature { name: named("y"), datatype: Datatype::Fp64, shape: vec![-1, 2] }];
    let made = run_before(&cast, &[of_floats("x", vec![1, 2], &[1.0, 2.0])], &taken).expect("a batch");
    assert_eq!((made.len(), made[0].shape.as_slice()), (1, [1, 2].as_slice()));
    let other = [TensorSignature { name: named("z"), ..taken[0].clone() }];
    let missing = run_before(&cast, &[of_floats("x", vec![1, 2], &[1.0, 2.0])], &other);
    assert_eq!(missing, Err(GlueFault::Missing { place: named("`before`"), name: named("z") }));
}
