# Defines oneDNN as the target OneDNN::dnnl. Its own package file aborts on Debian unless the OpenCL loader is installed. The
# search order is OneDNN_ROOT and CMAKE_PREFIX_PATH, OneDNN_HINT (a folder with include and lib), the system. Results are not
# cached, so that an environment that is made after the first configure step is found in the next.
find_library(OneDNN_FILE NAMES dnnl HINTS ${OneDNN_HINT}/lib NO_CACHE)
cmake_path(GET OneDNN_FILE PARENT_PATH OneDNN_FOLDER)
find_path(OneDNN_INCLUDE oneapi/dnnl/dnnl.hpp HINTS ${OneDNN_FOLDER}/../include NO_CACHE)
if(OneDNN_INCLUDE)
  cmake_path(NORMAL_PATH OneDNN_INCLUDE)
  file(STRINGS ${OneDNN_INCLUDE}/oneapi/dnnl/dnnl_version.h OneDNN_LINES REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" OneDNN_VERSION "${OneDNN_LINES}")
  list(JOIN OneDNN_VERSION "." OneDNN_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN REQUIRED_VARS OneDNN_FILE OneDNN_INCLUDE VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET OneDNN::dnnl)
  add_library(OneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(OneDNN::dnnl PROPERTIES IMPORTED_LOCATION ${OneDNN_FILE}
                                                INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE})
endif()
