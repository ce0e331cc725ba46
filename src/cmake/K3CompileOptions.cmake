# Compiler settings shared by every target of the project.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# The numeric contract names every fused operation itself: the compiler must not add any.
add_compile_options(-ffp-contract=off)
# Designated initialisers leave fields at their defaults on purpose.
add_compile_options(-Wall -Wextra -Wpedantic -Wno-missing-field-initializers -Wshadow -Wconversion -Wsign-conversion)
# g++ 12 warns falsely inside std::string when it optimises (GCC bug 105651).
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(K3_WERROR)
  add_compile_options(-Werror)
endif()

if(K3_SANITIZE)
  add_compile_options(-fsanitize=${K3_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${K3_SANITIZE})
endif()

# The fuzzers follow the library's branches.
if(K3_BUILD_FUZZERS)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
