# Paths of libraries that CMake does not find by itself. Copy it and uncomment what you need:
#
#   cp cmake/config.example.cmake cmake/config.cmake
#
# cmake/config.cmake belongs to your machine and is not in git. After a change, configure again: cmake --fresh ..
# A folder that does not exist is refused. Values that you pass to cmake with -D take precedence.

# Open MPI: the folder with bin/mpicxx.
# hetu_path(MPI_HOME /opt/openmpi)

# HDF5: the folder with bin/h5cc.
# hetu_path(HDF5_ROOT /opt/hdf5)

# oneDNN: the folder with include/oneapi and lib. By default CMake uses the one in .venv (PyPI's onednn-devel-cpu-gomp, which
# ./run installs there), or the system's. With 3.2 in place of Debian 12's 2.6, a step of ResNet-50 took .83 of the time, and
# .89 in bfloat16. This was measured when oneDNN also computed 3 x 3 convolutions. BERT's time is the same.
# hetu_path(OneDNN_ROOT /opt/onednn)

# ZeroMQ's C++ interface.
# hetu_path(cppzmq_ROOT /opt/zeromq)

# Python that imports nanobind and numpy: the interpreter.
# hetu_path(Python_EXECUTABLE /opt/conda/envs/hetu/bin/python3)

# The CUDA Toolkit, for -DHETU_CUDA=ON: the folder with bin/nvcc.
# hetu_path(CUDAToolkit_ROOT /usr/local/cuda)

# cuDNN 9, for convolutions on a GPU: the folder with cudnn_graph.h.
# hetu_path(CUDNN_INCLUDE_DIR /usr/local/cudnn/include)
