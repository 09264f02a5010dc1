// The version of the library; CMakeLists.txt reads it from here.
#pragma once

#define LINREC_VERSION_MAJOR 0
#define LINREC_VERSION_MINOR 1
#define LINREC_VERSION_PATCH 0
