# Reads the paths of this machine from cmake/config.cmake, if it exists. config.example.cmake shows its form.
set(HETU_CONFIG ${PROJECT_SOURCE_DIR}/cmake/config.cmake CACHE FILEPATH "paths of this machine")

# hetu_path(NAME path): sets a path for find_package and similar commands, unless -DNAME= gave one. The path must exist.
macro(hetu_path name path)
  if(NOT DEFINED CACHE{${name}} AND NOT DEFINED ${name})
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR " hetu: ${HETU_CONFIG} gives ${name} as ${path}, which does not exist")
    endif()
    set(${name} "${path}" CACHE PATH "from ${HETU_CONFIG}")
    message(STATUS "hetu: ${name} ${path}")
  endif()
endmacro()

include(${HETU_CONFIG} OPTIONAL)
