//! How does a picture, or a part of it, get another size? Bilinear, with the middles of pixels at halves.
//!
//! Example: four pixels become two. The first new one is the mean of the first two: its middle is 0.5, which is 1.0 of
//! the old ones, and that is between the middles 0.5 and 1.5.

use super::fault::{GLUE_ROWS_MAX, TransformFault, bytes_of};
use super::numbers::{floats, of_floats};
use super::rows::RowSet;
use crate::tensor::{Datatype, Tensor};
use apportion_domain::transform::{CropStep, PictureFit, PictureSize, PixelLayout, ResizeStep, picture_axes};

/// How the elements of one picture lie.
#[derive(Clone, Copy, Debug)]
struct Grid {
    height: usize,
    width: usize,
    channels: usize,
    layout: PixelLayout,
    /// Elements from one row, column and channel to the next.
    steps: [usize; 3],
}

impl Grid {
    /// The grid of the pictures of a tensor whose type was checked.
    fn of(tensor: &Tensor, layout: PixelLayout) -> Self {
        let inner = &tensor.shape[1..];
        let (height, width) = picture_axes(inner.len(), layout).expect("a picture's axes");
        let channels = if inner.len() == 2 { 1 } else { inner[3 - height - width] };
        // Without an axis of channels there is one, and it may be anywhere.
        Self::new(inner[height], inner[width], channels, layout)
    }

    fn new(height: usize, width: usize, channels: usize, layout: PixelLayout) -> Self {
        let steps = match layout {
            PixelLayout::ChannelsFirst => [width, 1, height.saturating_mul(width)],
            PixelLayout::ChannelsLast => [width.saturating_mul(channels), channels, 1],
        };
        Self { height, width, channels, layout, steps }
    }

    /// The same with another size.
    fn sized(self, size: PictureSize) -> Self {
        Self::new(size.height as usize, size.width as usize, self.channels, self.layout)
    }

    fn index(&self, y: usize, x: usize, channel: usize) -> usize {
        y * self.steps[0] + x * self.steps[1] + channel * self.steps[2]
    }

    fn elements(&self) -> usize {
        self.height * self.width * self.channels
    }
}

/// A part of a picture, in whole pixels; at least one.
#[derive(Clone, Copy, Debug)]
struct Region {
    top: usize,
    left: usize,
    height: usize,
    width: usize,
}

/// The two old pixels of a new one along an axis.
#[derive(Clone, Copy, Debug)]
struct Neighbours {
    lower: usize,
    upper: usize,
    /// Weight of the upper one.
    weight: f32,
}

/// The neighbours of each of `made` new pixels among `had` old ones, of which the first is at `start`.
fn neighbours(start: usize, had: usize, made: usize) -> Vec<Neighbours> {
    let ratio = had as f32 / made as f32;
    let of = |at: usize| {
        let middle = ((at as f32 + 0.5) * ratio - 0.5).clamp(0.0, (had - 1) as f32);
        let lower = middle as usize;
        Neighbours { lower: start + lower, upper: start + (lower + 1).min(had - 1), weight: middle - lower as f32 }
    };
    (0..made).map(of).collect()
}

fn between(one: f32, other: f32, weight: f32) -> f32 {
    one + (other - one) * weight
}

/// The elements of one picture.
#[derive(Clone, Copy)]
struct Pixels<'a> {
    datatype: Datatype,
    data: &'a [u8],
    grid: Grid,
}

impl Pixels<'_> {
    fn value(&self, y: usize, x: usize, channel: usize) -> f32 {
        let index = self.grid.index(y, x, channel);
        match self.datatype {
            Datatype::Uint8 => f32::from(self.data[index]),
            _ => f32::from_le_bytes(self.data[4 * index..4 * index + 4].try_into().expect("four bytes")),
        }
    }
}

/// The new pictures so far.
struct Canvas {
    datatype: Datatype,
    grid: Grid,
    fit: PictureFit,
    fill: f32,
    data: Vec<u8>,
}

impl Canvas {
    /// Height and width that a region gets.
    fn content(&self, region: Region) -> (usize, usize) {
        let (height, width) = (self.grid.height, self.grid.width);
        match self.fit {
            PictureFit::Stretch => (height, width),
            PictureFit::Contain => {
                let scale = (height as f64 / region.height as f64).min(width as f64 / region.width as f64);
                let side = |had: usize, most: usize| ((had as f64 * scale).round() as usize).clamp(1, most);
                (side(region.height, height), side(region.width, width))
            }
        }
    }

    /// Adds a picture: this region of another one.
    fn add(&mut self, from: Pixels<'_>, region: Region) {
        if self.grid.elements() == 0 {
            return;
        }
        let start = self.data.len();
        let fill = self.fill;
        (0..self.grid.elements()).for_each(|_| push_value(self.datatype, fill, &mut self.data));
        let (height, width) = self.content(region);
        let columns = neighbours(region.left, region.width, width);
        for (y, rows) in neighbours(region.top, region.height, height).iter().enumerate() {
            for (x, column) in columns.iter().enumerate() {
                for channel in 0..self.grid.channels {
                    let along = |y: usize| {
                        let ends = (from.value(y, column.lower, channel), from.value(y, column.upper, channel));
                        between(ends.0, ends.1, column.weight)
                    };
                    let value = between(along(rows.lower), along(rows.upper), rows.weight);
                    set_value(self.datatype, value, &mut self.data[start..], self.grid.index(y, x, channel));
                }
            }
        }
    }
}

/// A number as a byte: the nearest one.
fn byte(value: f32) -> u8 {
    (value + 0.5).floor() as u8
}

fn push_value(datatype: Datatype, value: f32, out: &mut Vec<u8>) {
    match datatype {
        Datatype::Uint8 => out.push(byte(value)),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
}

fn set_value(datatype: Datatype, value: f32, out: &mut [u8], index: usize) {
    match datatype {
        Datatype::Uint8 => out[index] = byte(value),
        _ => out[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes()),
    }
}

/// The pictures of a tensor, one for each row.
struct Pictures<'a> {
    tensor: &'a Tensor,
    grid: Grid,
}

impl<'a> Pictures<'a> {
    fn of(tensor: &'a Tensor, layout: PixelLayout) -> Self {
        Self { tensor, grid: Grid::of(tensor, layout) }
    }

    fn row(&self, row: usize) -> Pixels<'a> {
        let bytes = self.grid.elements() * self.tensor.datatype.size();
        let data = &self.tensor.data[row * bytes..(row + 1) * bytes];
        Pixels { datatype: self.tensor.datatype, data, grid: self.grid }
    }

    fn has_pixels(&self) -> bool {
        self.grid.height > 0 && self.grid.width > 0
    }

    /// A canvas for pictures of another size.
    fn canvas(&self, size: PictureSize, fit: PictureFit, fill: f64) -> Canvas {
        let grid = self.grid.sized(size);
        Canvas { datatype: self.tensor.datatype, grid, fit, fill: fill as f32, data: Vec::new() }
    }

    /// The shape of as many pictures of another size.
    fn shape(&self, rows: usize, size: PictureSize, layout: PixelLayout) -> Vec<usize> {
        let mut shape = self.tensor.shape.clone();
        let (height, width) = picture_axes(shape.len() - 1, layout).expect("a picture's axes");
        shape[0] = rows;
        (shape[height + 1], shape[width + 1]) = (size.height as usize, size.width as usize);
        shape
    }
}

pub(super) fn resize(step: &ResizeStep, of: &Tensor) -> Result<Tensor, TransformFault> {
    let pictures = Pictures::of(of, step.layout);
    let shape = pictures.shape(of.rows(), step.size, step.layout);
    bytes_of(&step.to, of.datatype, shape[0], &shape[1..])?;
    if of.rows() > 0 && !pictures.has_pixels() {
        return Err(TransformFault::NoPixels(step.of.clone()));
    }
    let mut canvas = pictures.canvas(step.size, step.fit, step.fill);
    let (height, width) = (pictures.grid.height, pictures.grid.width);
    (0..of.rows()).for_each(|row| canvas.add(pictures.row(row), Region { top: 0, left: 0, height, width }));
    Ok(Tensor { name: step.to.clone(), datatype: of.datatype, shape, data: canvas.data.into() })
}

/// The pixels that a box touches, the picture's edges apart; none if it has no area there, or no finite corners.
fn touched(corners: [f32; 4], factors: [f64; 2], grid: &Grid) -> Option<Region> {
    if !corners.iter().all(|corner| corner.is_finite()) {
        return None;
    }
    let [left, top, right, bottom] = corners.map(f64::from);
    let (height, width) = (grid.height as f64, grid.width as f64);
    let (left, right) = ((left * factors[1]).max(0.0).floor(), (right * factors[1]).min(width).ceil());
    let (top, bottom) = ((top * factors[0]).max(0.0).floor(), (bottom * factors[0]).min(height).ceil());
    let has_area = corners[0] < corners[2] && corners[1] < corners[3] && left < right && top < bottom;
    has_area.then_some(Region {
        top: top as usize,
        left: left as usize,
        height: (bottom - top) as usize,
        width: (right - left) as usize,
    })
}

pub(super) fn crop(step: &CropStep, rows: &mut RowSet) -> Result<(), TransformFault> {
    let (boxes, of) = (rows.tensor(&step.boxes), rows.tensor(&step.of));
    let (box_rows, picture_rows) = (rows.rows_in(&step.boxes), rows.rows_in(&step.of));
    let numbers = floats(boxes);
    let each = boxes.shape[1..].iter().product::<usize>();
    let pictures = Pictures::of(of, step.layout);
    let mut canvas = pictures.canvas(step.size, step.fit, step.fill);
    let factors = step.boxes_in.map_or([1.0, 1.0], |size| {
        [pictures.grid.height as f64 / f64::from(size.height), pictures.grid.width as f64 / f64::from(size.width)]
    });
    let (mut sources, mut kept) = (Vec::new(), Vec::new());
    for row in 0..rows.rows() {
        let of_row = &numbers[box_rows[row] * each..(box_rows[row] + 1) * each];
        for corners in of_row.as_chunks::<4>().0 {
            let Some(region) = touched(*corners, factors, &pictures.grid) else { continue };
            sources.push(row);
            kept.extend_from_slice(corners);
            if sources.len() > GLUE_ROWS_MAX {
                return Err(TransformFault::Rows);
            }
            bytes_of(&step.to, of.datatype, sources.len(), &pictures.shape(0, step.size, step.layout)[1..])?;
            canvas.add(pictures.row(picture_rows[row]), region);
        }
    }
    let shape = pictures.shape(sources.len(), step.size, step.layout);
    let made = Tensor { name: step.to.clone(), datatype: of.datatype, shape, data: canvas.data.into() };
    rows.replace_rows(&sources)?;
    rows.put(of_floats(&step.boxes, vec![sources.len(), 4], &kept));
    rows.put(made);
    Ok(())
}
