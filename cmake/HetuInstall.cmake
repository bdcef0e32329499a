# Install rules of `cmake --install` and `pip install .`. Components: tool (the hetu command), python (the package hetu), cpp
# (libraries, headers and the CMake package). pip takes the first two (pyproject.toml).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(HETU_INCLUDE_DIR ${CMAKE_INSTALL_INCLUDEDIR}/hetu)  # includes are written from the tree's root, so it is one folder
set(HETU_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hetu)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # libraries outside the system's folders, such as conda's, are found at run time
# oneDNN from the tree's environment is installed, too. One from the system or from conda stays where it is.
set(HETU_LIBRARY_DIR ${CMAKE_INSTALL_LIBDIR}/hetu)
if(SKBUILD)  # scikit-build-core: the prefix is the wheel
  set(HETU_BIN_DIR ${SKBUILD_SCRIPTS_DIR})
else()
  set(HETU_BIN_DIR ${CMAKE_INSTALL_BINDIR})
endif()

# hetu_install_library(name header..): installs the library as hetu::NAME of the package, and its headers at their paths in
# the tree.
function(hetu_install_library name)
  install(TARGETS hetu_${name} EXPORT hetu ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
  foreach(header ${ARGN})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${header})
    cmake_path(GET path PARENT_PATH folder)
    install(FILES ${header} DESTINATION ${HETU_INCLUDE_DIR}/${folder} COMPONENT cpp)
  endforeach()
endfunction()

# Sets `site` to the folder in which `cmake --install` or pip installs the Python package.
macro(hetu_site_folder)
  if(SKBUILD)
    set(site .)
  else()
    set(site ${CMAKE_INSTALL_LIBDIR}/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/site-packages)
  endif()
endmacro()

# hetu_install_opened(target): installs a module that is opened at run time where datasets/opencv_image.h searches for it: in
# the folder of libraries for programs, and next to the Python module.
function(hetu_install_opened target)
  if(NOT SKBUILD)
    foreach(component tool cpp)
      install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
    endforeach()
  endif()
  if(HETU_WITH_PYTHON)
    hetu_site_folder()
    install(TARGETS ${target} LIBRARY DESTINATION ${site}/hetu COMPONENT python)
  endif()
endfunction()

# hetu_links_onednn(target folder component): makes the target, installed in this folder of the prefix, find the oneDNN of
# the build, also after the prefix is moved.
function(hetu_links_onednn target folder component)
  if(HETU_BRINGS_ONEDNN)
    file(RELATIVE_PATH from_there /${folder} /${HETU_LIBRARY_DIR})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/${from_there}")
    hetu_install_onednn(${component})
  endif()
endfunction()

# hetu_install_onednn(component): installs the library under the name that it contains and that programs are linked with.
function(hetu_install_onednn component)
  install(FILES ${HETU_BRINGS_ONEDNN} DESTINATION ${HETU_LIBRARY_DIR} COMPONENT ${component})
endfunction()

# hetu_install_module(target ...): installs the Python package with its compiled module, its stubs and its other files, and
# heturun with the cluster files that it ships. pip's build has no MPI, and therefore no heturun.
function(hetu_install_module target)
  hetu_site_folder()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/hetu DESTINATION ${site} COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "*.html" PATTERN "*.css" PATTERN "*.js"
          PATTERN __pycache__ EXCLUDE)
  hetu_links_onednn(${target} ${site}/hetu python)
  install(TARGETS ${target} ${ARGN} LIBRARY DESTINATION ${site}/hetu COMPONENT python)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/python/hetu-stubs DESTINATION ${site} COMPONENT python)
  if(NOT SKBUILD)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/python/heturun DESTINATION ${HETU_BIN_DIR} COMPONENT python)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/config DESTINATION ${site}/hetu COMPONENT python FILES_MATCHING PATTERN "*.yml")
  endif()
endfunction()

# hetu_install_package(): installs the files for find_package(hetu). Call it after all libraries.
function(hetu_install_package)
  if(HETU_BRINGS_ONEDNN)
    cmake_path(GET HETU_BRINGS_ONEDNN FILENAME onednn)
    set(onednn ${HETU_LIBRARY_DIR}/${onednn})
    hetu_install_onednn(cpp)
  endif()
  set(config ${CMAKE_BINARY_DIR}/package/hetu-config.cmake)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/hetu-config.cmake.in ${config}
                                INSTALL_DESTINATION ${HETU_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
  set(version ${CMAKE_BINARY_DIR}/package/hetu-config-version.cmake)
  write_basic_package_version_file(${version} COMPATIBILITY SameMinorVersion)
  install(FILES ${config} ${version} ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
          DESTINATION ${HETU_PACKAGE_DIR} COMPONENT cpp)
  install(TARGETS hetu_flags EXPORT hetu COMPONENT cpp)
  install(EXPORT hetu FILE hetu-targets.cmake NAMESPACE hetu:: DESTINATION ${HETU_PACKAGE_DIR} COMPONENT cpp)
endfunction()
