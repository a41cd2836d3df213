//! Which identifiers are there? One newtype for each, so that no two can be confused.

macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub usize);

        impl $name {
            /// The position in its list.
            #[inline]
            #[must_use]
            pub const fn get(self) -> usize {
                self.0
            }
        }
    };
}

index! {
    /// A pipeline's position in its problem.
    PipelineIndex
}
index! {
    /// A task's position in its pipeline, in the file's order.
    TaskIndex
}
index! {
    /// A variant's position in its task.
    VariantIndex
}
index! {
    /// A hardware type's position in its problem.
    HardwareIndex
}

/// A client's request at one ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One query at one task: the root query of a request, or one made by a parent query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);
