"""What the devices say of themselves while a run goes on."""
