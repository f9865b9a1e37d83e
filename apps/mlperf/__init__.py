"""The MLPerf models that the 1,000-kernels study compares with, where no library of the project already has them."""
