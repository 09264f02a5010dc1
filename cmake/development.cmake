# Settings for linrec's own executables. Users of the library never see them.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

# g++ 12 sees bad copies in "text" + std::string (GCC bug 105651 and its relatives).
add_library(linrec_warnings INTERFACE)
target_compile_options(linrec_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion $<$<BOOL:${LINREC_WERROR}>:-Werror>
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>)

# Finds a package that an option asks for, or says which option to turn off.
macro(linrec_require package option debian_package)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${option} needs ${package} (Debian and Ubuntu: ${debian_package}). "
                        "Install it (scripts/setup.sh installs all) or set -D${option}=OFF.")
  endif()
endmacro()

# The loops of all kernels, compiled once for the tools and the tests that link it. Every source of theirs includes
# the header that says so: by force, or first in the precompiled header where LINREC_PRECOMPILED_KERNELS is set,
# for g++ ignores a precompiled header that is not the first to be included.
set(linrec_kernels_header "${PROJECT_SOURCE_DIR}/examples/models/kernels.hpp")
add_library(linrec_kernels STATIC EXCLUDE_FROM_ALL examples/models/kernels_float.cpp examples/models/kernels_double.cpp)
target_link_libraries(linrec_kernels PUBLIC linrec::linrec PRIVATE linrec_warnings)
target_compile_options(linrec_kernels INTERFACE
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:LINREC_PRECOMPILED_KERNELS>>>:SHELL:-include\ ${linrec_kernels_header}>)

set_target_properties(linrec_kernels PROPERTIES UNITY_BUILD OFF)  # compiled side by side

# Layers and models, likewise.
if(TARGET linrec::io)
  add_library(linrec_models STATIC EXCLUDE_FROM_ALL examples/models/float.cpp examples/models/double.cpp)
  target_link_libraries(linrec_models PUBLIC linrec::io linrec_kernels PRIVATE linrec_warnings)
  target_include_directories(linrec_models PUBLIC "${PROJECT_SOURCE_DIR}")
  set_target_properties(linrec_models PROPERTIES UNITY_BUILD OFF)
endif()

# For sources whose speed does not matter.
set(linrec_quick_to_build -O0)

# Where the examples keep their data.
set(LINREC_EXAMPLE_DATA "${PROJECT_SOURCE_DIR}/examples/forecast/data")
