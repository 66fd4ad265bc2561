"""Writing the skeleton of a new controller into a checkout: `docs/add-a-service.md`."""
