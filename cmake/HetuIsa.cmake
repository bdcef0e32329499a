# The instruction set that the CPU's kernels are compiled for. HETU_ISA names it. An environment variable of the same name is
# the default, so that one variable serves ./run, CMake and the programs. `native` is this machine's processor. The others
# are for testing a weaker processor's kernels on this machine, and for builds that run elsewhere.
set(HETU_ISAS native x86-64 avx2 avx512 avx512-bf16)
set(HETU_ISA_OPTIONS_native -march=native -mprefer-vector-width=512)
set(HETU_ISA_OPTIONS_x86-64 "")
# Tuned for AMD Zen 3, whose users have no AVX-512: GCC then compiles some loops in other ways than for an Intel processor.
set(HETU_ISA_OPTIONS_avx2 -march=x86-64-v3 -mtune=znver3)
set(HETU_ISA_OPTIONS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(HETU_ISA_OPTIONS_avx512-bf16 ${HETU_ISA_OPTIONS_avx512} -mavx512vnni -mavx512bf16)

set(default native)
if(NOT "$ENV{HETU_ISA}" STREQUAL "")
  set(default $ENV{HETU_ISA})
endif()
set(HETU_ISA ${default} CACHE STRING "instruction set of the CPU's kernels: native, x86-64, avx2, avx512 or avx512-bf16")
set_property(CACHE HETU_ISA PROPERTY STRINGS ${HETU_ISAS})
if(NOT HETU_ISA IN_LIST HETU_ISAS)
  list(JOIN HETU_ISAS ", " known)
  message(FATAL_ERROR "HETU_ISA: expected one of ${known}, got '${HETU_ISA}'")
endif()
set(HETU_ISA_OPTIONS ${HETU_ISA_OPTIONS_${HETU_ISA}})

# Features that the compiler may use with these options. It defines a macro for each. HETU_ISA_FEATURES holds their names in
# /proc/cpuinfo, as a C++ list of strings. A program compares them with the processor it runs on.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} ${HETU_ISA_OPTIONS} -dM -E -x c++ /dev/null
                OUTPUT_VARIABLE macros RESULT_VARIABLE failed ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "HETU_ISA=${HETU_ISA}: ${CMAKE_CXX_COMPILER} does not accept ${HETU_ISA_OPTIONS}: ${said}")
endif()
set(HETU_ISA_FEATURES "")
foreach(feature avx2 fma bmi2 f16c avx512f avx512bw avx512cd avx512dq avx512vl avx512_ifma:avx512ifma avx512_vbmi:avx512vbmi
        avx512_vbmi2 avx512_vnni avx512_bitalg avx512_vpopcntdq avx512_bf16 avx512_fp16 avx_vnni gfni vpclmulqdq vaes)
  if(feature MATCHES "(.*):(.*)")
    set(macro ${CMAKE_MATCH_1})
    set(feature ${CMAKE_MATCH_2})
  else()
    set(macro ${feature})
  endif()
  string(REPLACE "_" "" macro ${macro})
  string(TOUPPER ${macro} macro)
  if(macros MATCHES "#define __${macro}__ 1")
    string(APPEND HETU_ISA_FEATURES "\"${feature}\", ")
  endif()
endforeach()
