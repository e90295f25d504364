"""What a pipeline of stages decides, without a clock or a device: the simulator and the live
pipeline ask the same rules."""
