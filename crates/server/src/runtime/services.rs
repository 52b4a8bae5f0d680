//! Services run on a core beside its shards: doors, the control of topics. Other threads send a core a task for one
//! of them, which is found by its type. It knows none of them.

use std::{
    any::{Any, TypeId},
    cell::RefCell,
    collections::HashMap,
    fmt,
    rc::Rc,
};

/// The services of a core, one of each type.
#[derive(Default)]
pub(crate) struct Services(RefCell<HashMap<TypeId, Rc<dyn Any>>>);

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("count", &self.0.borrow().len()).finish()
    }
}

impl Services {
    /// Adds a service; from now on calls reach it.
    pub(crate) fn add<S: Any>(&self, service: Rc<S>) {
        self.0.borrow_mut().insert(TypeId::of::<S>(), service);
    }

    /// The service of this type, if the core has it.
    pub(crate) fn find<S: Any>(&self) -> Option<Rc<S>> {
        let service = self.0.borrow().get(&TypeId::of::<S>()).cloned();
        service.and_then(|service| service.downcast().ok())
    }

    /// Lets all of them go: they hold their core, which holds them.
    pub(crate) fn clear(&self) {
        let services = self.0.take();
        drop(services);
    }

    /// The service of this type; a new one if the core has none yet.
    pub(crate) fn find_or_add<S: Any + Default>(&self) -> Rc<S> {
        self.find().unwrap_or_else(|| {
            let service = Rc::new(S::default());
            self.add(service.clone());
            service
        })
    }
}

/// Something that a core is to do with one of its services.
pub(crate) struct Call(Box<dyn FnOnce(&Services) + Send>);

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl Call {
    /// Calls the service of this type. On a core that has none nothing is done, and what `act` holds is
    /// dropped: whoever waits for an answer learns so.
    pub(crate) fn to<S: Any>(act: impl FnOnce(&Rc<S>) + Send + 'static) -> Self {
        Self(Box::new(move |services| {
            if let Some(service) = services.find::<S>() {
                act(&service);
            }
        }))
    }

    /// Does it, on the core.
    pub(crate) fn run(self, services: &Services) {
        (self.0)(services);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn services_that_hold_what_holds_them_are_let_go() {
        let services = Rc::new(Services::default());
        services.add(Rc::new(services.clone()));
        assert_eq!(Rc::strong_count(&services), 2);
        services.clear();
        assert_eq!(Rc::strong_count(&services), 1);
    }

    #[test]
    fn a_call_reaches_the_service_of_its_type_and_is_dropped_where_there_is_none() {
        let services = Services::default();
        services.add(Rc::new(Cell::new(1_u32)));
        Call::to::<Cell<u32>>(|count| count.set(count.get() + 1)).run(&services);
        assert_eq!(services.find_or_add::<Cell<u32>>().get(), 2);
        let held = std::sync::Arc::new(());
        let asked = held.clone();
        Call::to::<String>(move |_| drop(asked)).run(&services);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
}
