# The build for browsers: `emcmake cmake` compiles the schedule tools to WebAssembly, for the playground of the documentation
# site (docs/playground). Emscripten has its own C library, so the system's headers as a whole must not be in its path. A
# folder of links shows it only the libraries that consist of headers.
foreach(part TRAINING PYTHON CAIRO TESTS)
  set(HETU_${part} OFF)
endforeach()
set(HETU_STATIC ON)
set(CMAKE_CXX_COMPILE_OPTIONS_PIC "")  # the program is one file; relocatable code would be larger
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "")
# Exceptions of WebAssembly itself; Emscripten's default calls JavaScript for each function that may throw.
add_compile_options(-fwasm-exceptions)
add_link_options(-fwasm-exceptions)

set(HETU_WEB_HEADERS ${CMAKE_BINARY_DIR}/headers_of_libraries)
file(MAKE_DIRECTORY ${HETU_WEB_HEADERS})
foreach(header fmt/format.h nlohmann/json.hpp spdlog/spdlog.h)
  cmake_path(GET header PARENT_PATH library)
  find_path(HETU_FOLDER_OF_${library} NAMES ${header} PATHS /usr/include /usr/local/include NO_CMAKE_FIND_ROOT_PATH)
  if(NOT HETU_FOLDER_OF_${library})
    message(FATAL_ERROR " hetu: ${header} is not found; cmake/packages.txt names its package")
  endif()
  file(CREATE_LINK ${HETU_FOLDER_OF_${library}}/${library} ${HETU_WEB_HEADERS}/${library} SYMBOLIC)
endforeach()
foreach(target fmt::fmt spdlog::spdlog_header_only nlohmann_json::nlohmann_json Threads::Threads)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} INTERFACE ${HETU_WEB_HEADERS})
endforeach()

# fmt is compiled once, because its headers take seconds per source. A distribution's package has no source of it, so this one
# names the functions that the headers declare and don't define.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/fmt.cpp CONTENT [[
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template locale_ref::locale_ref(const std::locale&);
template auto locale_ref::get<std::locale>() const -> std::locale;
}  // namespace detail
FMT_END_NAMESPACE
]] @ONLY)
add_library(hetu_fmt_once STATIC ${CMAKE_BINARY_DIR}/fmt.cpp)
target_link_libraries(hetu_fmt_once PRIVATE fmt::fmt)  # the headers; the program links this library
target_compile_features(hetu_fmt_once PRIVATE cxx_std_20)
set(HETU_FMT fmt::fmt)
set(HETU_SPDLOG "")
