# Builds and runs consumer/ in one WAY of getting at linrec; called by CTest, see CMakeLists.txt.
cmake_minimum_required(VERSION 3.22)
set(consumer "${CMAKE_CURRENT_LIST_DIR}/consumer")
set(build "${WORK_DIR}/${WAY}")
file(REMOVE_RECURSE "${build}")
file(MAKE_DIRECTORY "${build}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nended with ${status}:\n${output}")
  endif()
endfunction()

if(WAY STREQUAL "pkg-config")
  set(ENV{PKG_CONFIG_PATH} "${PC_DIR}:$ENV{PKG_CONFIG_PATH}")
  execute_process(COMMAND "${PKG_CONFIG}" --modversion linrec OUTPUT_VARIABLE version
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT version STREQUAL VERSION)
    message(FATAL_ERROR "pkg-config: expected version ${VERSION}, got ${version}")
  endif()
  execute_process(COMMAND "${PKG_CONFIG}" --cflags linrec OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run("${COMPILER}" -std=c++20 ${flags} "${consumer}/main.cpp" "${consumer}/other.cpp" -o "${build}/consumer")
  run("${build}/consumer")
  return()
endif()

set(configure "${CMAKE_COMMAND}" -S "${consumer}" -B "${build}" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DWAY=${WAY}"
    "-DLINREC_VERSION=${VERSION}" "-DLINREC_SOURCE_DIR=${SOURCE_DIR}" "-DCMAKE_PREFIX_PATH=${PREFIX}")

# Ways that must be refused, with a sentence that helps.
set(refusal_find_package_without_json "component io of linrec needs nlohmann_json")
set(refusal_find_package_without_tbb "component tbb of linrec needs oneTBB")
set(refusal_find_package_unknown_component "component nonsense of linrec is unknown; there are io, tbb")
set(refusal_find_package_other_version "requested version \"[0-9.]+\"")
if(DEFINED refusal_${WAY})
  execute_process(COMMAND ${configure} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(status EQUAL 0 OR NOT output MATCHES "${refusal_${WAY}}")
    message(FATAL_ERROR "Expected a refusal that says \"${refusal_${WAY}}\", got ${status}:\n${output}")
  endif()
  return()
endif()

run(${configure})
run("${CMAKE_COMMAND}" --build "${build}")
run("${build}/consumer")
