# How the HiGHS solver is compiled, for crate highs-sys (.cargo/config.toml). Forty of its sources are compiled as one: they share
# their headers, and the whole takes 3 minutes of one processor instead of 8.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40 CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "")
