#!/usr/bin/env bash
# Installs what building linrec needs and this machine lacks: scripts/setup.sh [--demo] [--ci]
#   --demo  also gnuplot, which draws the demo's curves
#   --ci    also all that .ci/run uses: gnuplot, and clang++ with its OpenMP
# Works with the packages of Debian and Ubuntu; elsewhere it says what is needed and fails.
set -euo pipefail

want_demo=false want_ci=false
for argument in "$@"; do
  case $argument in
    --demo) want_demo=true ;;
    --ci) want_ci=true want_demo=true ;;
    *)
      echo "usage: $0 [--demo] [--ci]" >&2
      exit 2
      ;;
  esac
done

has_tool() { command -v "$1" > /dev/null; }
# Whether the compiler finds one of these headers.
has_header() {
  local header
  for header in "$@"; do
    echo "#include <$header>" | g++ -std=c++20 -E -x c++ -I/usr/include/eigen3 -I/usr/local/include/eigen3 - \
      > /dev/null 2>&1 && return
  done
  return 1
}

packages=() descriptions=()
need() {
  packages+=("$1")
  descriptions+=("$2")
}

has_tool g++ || need g++ "g++ 11 or newer, or another C++20 compiler"
has_tool cmake || need cmake "CMake 3.22 or newer"
has_tool ninja || need ninja-build "Ninja"
has_tool pkg-config || need pkg-config "pkg-config"
has_tool git || need git "git"
has_header Eigen/Core || need libeigen3-dev "Eigen 3.4 or 5"
has_header nlohmann/json.hpp || need nlohmann-json3-dev "nlohmann_json 3.10 or newer"
has_header CLI/CLI.hpp || need libcli11-dev "CLI11 2"
has_header catch2/catch_all.hpp catch2/catch.hpp || need catch2 "Catch2 2.13 or 3"
has_header benchmark/benchmark.h || need libbenchmark-dev "Google Benchmark"
has_header tbb/task_arena.h || need libtbb-dev "oneTBB, for the adapter to it"
if $want_demo; then has_tool gnuplot || need gnuplot-nox "gnuplot"; fi
if $want_ci; then
  has_tool clang++ || need clang "clang++ 14 or newer"
  echo '#include <omp.h>' | clang++ -fopenmp -fsyntax-only -x c++ - > /dev/null 2>&1 ||
    need libomp-dev "OpenMP for clang++"
fi

# Whether version $1 is at least $2.
at_least() { [[ $(printf '%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }
old() {
  echo "linrec's build needs $1 or newer, and this machine has $2." >&2
  exit 1
}
check_versions() {
  local gxx cmake
  gxx=$(g++ -dumpfullversion)
  at_least "$gxx" 11 || old "g++ 11" "$gxx"
  cmake=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
  at_least "$cmake" 3.22 || old "CMake 3.22" "$cmake"
}

if ((${#packages[@]} == 0)); then
  check_versions
  exit 0
fi

give_up() {
  {
    echo "$1"
    printf '  %s\n' "${descriptions[@]}"
    echo "On Debian or Ubuntu: apt-get install ${packages[*]}"
  } >&2
  exit 1
}

has_tool apt-get || give_up "linrec's build needs, and this machine lacks:"
as_root=()
if ((EUID != 0)); then
  has_tool sudo || give_up "There is neither root nor sudo to install what is missing:"
  as_root=(sudo)
fi

echo "Installing ${packages[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_all() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
    "${packages[@]}" >> "$log" 2>&1 < /dev/null
}
# The package lists may be absent or old.
if ! install_all; then
  "${as_root[@]}" apt-get update >> "$log" 2>&1 < /dev/null || true
  install_all || {
    cat "$log" >&2
    give_up "The installation failed. Needed:"
  }
fi
check_versions
