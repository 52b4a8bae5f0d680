//! Indices of cores and of shards as different types, and vectors that accept only the right one.

use std::{
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// Which core, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CoreIndex(pub(crate) u32);

impl CoreIndex {
    /// The core that runs [`ShardIndex::CATALOGUE`]: the control of topics and the subscriptions are there.
    pub(crate) const FIRST: Self = Self(0);
}

/// Which shard of the data directory, counted from 0: the number of its lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ShardIndex(pub(crate) u32);

impl ShardIndex {
    /// The shard that keeps the catalogue.
    pub(crate) const CATALOGUE: Self = Self(0);
}

/// A number that is the index of one kind of thing.
pub(crate) trait VecIndex: Copy {
    /// The index with this number.
    fn of(position: usize) -> Self;

    /// Its number.
    fn position(self) -> usize;
}

impl VecIndex for CoreIndex {
    fn of(position: usize) -> Self {
        Self(position as u32)
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

impl VecIndex for ShardIndex {
    fn of(position: usize) -> Self {
        Self(position as u32)
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

/// A value for each core, or each shard.
#[derive(Clone, Debug)]
pub(crate) struct IndexVec<I, T> {
    values: Vec<T>,
    index: PhantomData<fn(I) -> I>,
}

impl<I: VecIndex, T> IndexVec<I, T> {
    /// Values made one after the other, in the order of the indices.
    pub(crate) fn of(count: usize, value: impl FnMut(I) -> T) -> Self {
        (0..count).map(I::of).map(value).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// All indices, in their order. They borrow nothing.
    pub(crate) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.values.len()).map(I::of)
    }

    /// The values with their indices.
    pub(crate) fn iter_indexed(&self) -> impl Iterator<Item = (I, &T)> {
        self.indices().zip(&self.values)
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<V: IntoIterator<Item = T>>(values: V) -> Self {
        Self { values: values.into_iter().collect(), index: PhantomData }
    }
}

impl<I: VecIndex, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        &self.values[index.position()]
    }
}

impl<I: VecIndex, T> IndexMut<I> for IndexVec<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.values[index.position()]
    }
}
