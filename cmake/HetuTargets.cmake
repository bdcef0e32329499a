# The only functions that make targets. A library names its headers, its sources and the libraries it may use. A test names
# its sources, labels and libraries. There are no globs and no global flags.

# Designated initializers may omit members, which then have their defaults.
set(HETU_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)

# Options for arithmetic. There is no -ffast-math, and no contraction: a compiler that fuses a vector body and its tail
# differently would make an element's bits depend on its position. No code reads errno or the floating-point flags, which
# would keep a conditional product out of vector code.
set(HETU_KERNEL_OPTIONS -O3 -ffp-contract=off -fno-trapping-math -fno-math-errno -Wno-psabi)
list(APPEND HETU_KERNEL_OPTIONS ${HETU_ISA_OPTIONS})

# Options of every Hetu target.
add_library(hetu_flags INTERFACE)
add_library(hetu::flags ALIAS hetu_flags)
set_target_properties(hetu_flags PROPERTIES EXPORT_NAME flags)
target_compile_features(hetu_flags INTERFACE cxx_std_20)
target_include_directories(hetu_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                $<INSTALL_INTERFACE:${HETU_INCLUDE_DIR}>)
target_compile_options(hetu_flags INTERFACE $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${HETU_WARNINGS}>>)
if(HETU_SANITIZE)
  target_compile_options(hetu_flags INTERFACE $<BUILD_INTERFACE:-fsanitize=${HETU_SANITIZE}>
                                              $<BUILD_INTERFACE:-fno-omit-frame-pointer>
                                              $<BUILD_INTERFACE:-fno-sanitize-recover=all>)
  target_link_options(hetu_flags INTERFACE $<BUILD_INTERFACE:-fsanitize=${HETU_SANITIZE}>)
endif()

# Headers that most sources include, parsed once per set of flags. This saves a third of a full build. HETU_PRECOMPILE=OFF
# shows sources that use them without including them (the test preset_core builds so).
set(HETU_PARSED_ONCE <algorithm> <array> <chrono> <cmath> <cstdint> <cstring> <deque> <filesystem> <fstream> <functional> <limits>
                     <map> <memory> <mutex> <numeric> <optional> <set> <sstream> <string> <string_view> <thread>
                     <unordered_map> <utility> <vector> <fmt/format.h>)

# hetu_precompile(target kind [HEADERS <h>..] [PRIVATE lib..] [OPTIONS flag..]): the first target of a kind creates the
# kind's precompiled headers with these headers, libraries and options. All targets of a kind must have the same options.
function(hetu_precompile target kind)
  if(NOT HETU_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(arg "" "" "HEADERS;PRIVATE;OPTIONS" ${ARGN})
  set(holder hetu_parsed_${kind})
  if(NOT TARGET ${holder})
    set(source ${CMAKE_BINARY_DIR}/parsed/${kind}.cpp)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)  # -fPIE; libraries and modules are -fPIC
      file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n" @ONLY)
      add_executable(${holder} EXCLUDE_FROM_ALL ${source})
    else()
      file(CONFIGURE OUTPUT ${source} CONTENT "\n" @ONLY)
      add_library(${holder} OBJECT EXCLUDE_FROM_ALL ${source})
    endif()
    target_link_libraries(${holder} PRIVATE hetu::flags ${HETU_FMT} ${arg_PRIVATE})
    target_compile_options(${holder} PRIVATE ${arg_OPTIONS})
    target_precompile_headers(${holder} PRIVATE ${HETU_PARSED_ONCE} ${arg_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()

# hetu_library(name DIR dir HEADERS a.h.. SOURCES a.cpp.. DEPS hetu::x.. [PRIVATE lib..] [OPTIONS flag..] [APART])
# DEPS are Hetu libraries (the layer check reads them). PRIVATE are outside libraries that only the sources use. Most of a
# small source's compile time goes into templates of its headers, so HETU_UNITY compiles eight sources at a time. APART
# excludes libraries whose sources define the same names, or take long by themselves.
function(hetu_library name)
  cmake_parse_arguments(arg "APART" "DIR" "HEADERS;SOURCES;DEPS;PRIVATE;OPTIONS" ${ARGN})
  list(TRANSFORM arg_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/${arg_DIR}/)
  list(TRANSFORM arg_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/${arg_DIR}/)
  add_library(hetu_${name} STATIC ${arg_SOURCES} ${arg_HEADERS})
  add_library(hetu::${name} ALIAS hetu_${name})
  set_target_properties(hetu_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name})
  if(HETU_UNITY AND NOT arg_APART)
    set_target_properties(hetu_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_link_libraries(hetu_${name} PUBLIC hetu::flags ${arg_DEPS} PRIVATE ${arg_PRIVATE})
  # -O2 compiles a fifth faster than Release's -O3 and suits all code except kernels, which set their own OPTIONS.
  target_compile_options(hetu_${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O2> ${arg_OPTIONS})
  if("-O3" IN_LIST arg_OPTIONS)
    hetu_precompile(hetu_${name} kernels PRIVATE OpenMP::OpenMP_CXX OPTIONS $<$<CONFIG:Release>:-O2> ${HETU_KERNEL_OPTIONS})
  elseif(NOT OpenMP::OpenMP_CXX IN_LIST arg_PRIVATE)  # the shared precompiled header is made without OpenMP
    hetu_precompile(hetu_${name} library PRIVATE nlohmann_json::nlohmann_json HEADERS <nlohmann/json.hpp>
                    OPTIONS $<$<CONFIG:Release>:-O2>)
  endif()
  hetu_check_headers(${name} ${arg_HEADERS})
  if(NOT arg_DIR STREQUAL "cli")  # libraries that only the tool and the module use are not installed
    hetu_install_library(${name} ${arg_HEADERS})
  endif()
endfunction()

# hetu_bundle(name hetu::x..): groups libraries under one name, for programs that link all of them.
function(hetu_bundle name)
  add_library(hetu_${name} INTERFACE)
  add_library(hetu::${name} ALIAS hetu_${name})
  set_target_properties(hetu_${name} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(hetu_${name} INTERFACE ${ARGN})
  install(TARGETS hetu_${name} EXPORT hetu COMPONENT cpp)
endfunction()

# Compiles each header of a library alone, to check that it includes what it needs. Part of the target check_headers only.
add_custom_target(check_headers)
function(hetu_check_headers name)
  if(NOT ARGN)
    return()
  endif()
  foreach(header ${ARGN})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${header})
    set(source ${CMAKE_BINARY_DIR}/headers/${path}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${path}\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  add_library(hetu_${name}_headers OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(hetu_${name}_headers PRIVATE hetu_${name})
  target_compile_options(hetu_${name}_headers PRIVATE -O0)
  add_dependencies(check_headers hetu_${name}_headers)
endfunction()

# hetu_test(name SOURCES dir/x_test.cpp.. DEPS hetu::x.. [LABELS unit] [TIMEOUT s] [ENV A=b..])
# Makes one executable per folder of tests/ and one ctest case per executable. A grid of thousands of cases would otherwise
# start thousands of processes. `build/bin/NAME --gtest_filter=..` runs a part.
function(hetu_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS;ENV" ${ARGN})
  if(NOT HETU_TESTS)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(HETU_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 6")
  endif()
  list(TRANSFORM arg_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/tests/)
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_DEPS} hetu::flags GTest::gtest_main GTest::gmock)
  if(HETU_SANITIZE)  # only the libraries are checked; g++ takes minutes for instrumented gtest grids
    set(options -O0 -fno-sanitize=undefined)
  else()
    set(options $<$<NOT:$<CONFIG:Debug>>:-O1>)  # tests are compiled more often than run
  endif()
  target_compile_options(${name} PRIVATE ${options})
  set(kind tests)
  set(openmp "")
  if(OpenMP::OpenMP_CXX IN_LIST arg_DEPS)
    set(kind tests_openmp)
    set(openmp OpenMP::OpenMP_CXX)
  endif()
  hetu_precompile(${name} ${kind} HEADERS <gmock/gmock.h> <gtest/gtest.h> OPTIONS ${options}
                  PRIVATE GTest::gtest_main GTest::gmock ${openmp})
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
                                          ENVIRONMENT "${HETU_TEST_ENV};${arg_ENV}")
endfunction()

# hetu_python_test(name SCRIPT dir/x_test.py [ARGS word..] [LABELS python] [TIMEOUT s] [ENV A=b..])
# Adds a script of tests/ that Python runs (unittest, or its own main). The package, the module and the commands are in its
# path. ctest lists it if there is an interpreter.
function(hetu_python_test name)
  cmake_parse_arguments(arg "" "SCRIPT;TIMEOUT" "ARGS;LABELS;ENV" ${ARGN})
  if(NOT HETU_TESTS OR NOT Python_Interpreter_FOUND)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS python)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/${arg_SCRIPT} ${arg_ARGS}
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  cmake_path(GET Python_EXECUTABLE PARENT_PATH python_bin)
  # The package, and what tests of several folders share. tests/python itself must not be there: where PyTorch isn't
  # installed, `import torch` would find its folder torch.
  set(tests ${PROJECT_SOURCE_DIR}/tests/python)
  set(path ${PROJECT_SOURCE_DIR}/python ${CMAKE_BINARY_DIR}/python ${tests}/small_jobs ${tests}/references)
  list(JOIN path ":" path)
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
    ENVIRONMENT "${HETU_TEST_ENV};PYTHONPATH=${path};${arg_ENV}"
    ENVIRONMENT_MODIFICATION
      "PATH=path_list_prepend:${CMAKE_BINARY_DIR}/bin:${PROJECT_SOURCE_DIR}/python:${python_bin}")
endfunction()
