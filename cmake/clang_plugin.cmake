# The Clang plugin: finds the first LLVM and Clang development packages of the versions below and
# builds tessera_clang, and tells the runtime where to look for it. No other target links LLVM.

# The best first: 19 is the one that kernels are measured with.
set(tessera_llvm_versions 19 20 21 22 18 17 16 15 14)
set(TESSERA_LLVM_ROOT "" CACHE PATH "Prefix of the LLVM to use, e.g. /usr/lib/llvm-19; empty: search")

# Sets `out`_INCLUDE, `out`_CLANG, `out`_LLVM and `out`_VERSION if the prefix holds what we need.
function(tessera_probe_llvm out prefix)
  set(include ${prefix}/include)
  set(config ${include}/llvm/Config/llvm-config.h)
  if(NOT EXISTS ${config} OR NOT EXISTS ${include}/clang/Frontend/CompilerInstance.h)
    return()
  endif()
  file(STRINGS ${config} lines REGEX "define LLVM_VERSION_STRING")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${lines}")
  string(REGEX MATCH "^[0-9]+" major "${version}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor "${version}")
  if(NOT major IN_LIST tessera_llvm_versions)
    return()
  endif()
  foreach(name LLVM CLANG)
    if(name STREQUAL LLVM)
      set(names libLLVM-${major}.so libLLVM.so.${minor} libLLVM.so)
    else()
      set(names libclang-cpp.so.${minor} libclang-cpp.so.${major} libclang-cpp.so)
    endif()
    find_library(found_${name}_${major} NAMES ${names} PATHS ${prefix}/lib ${prefix}/lib64
      NO_DEFAULT_PATH NO_CACHE)
    if(NOT found_${name}_${major})
      return()
    endif()
    file(REAL_PATH ${found_${name}_${major}} real)
    set(${out}_${name} ${real} PARENT_SCOPE)
  endforeach()
  set(${out}_INCLUDE ${include} PARENT_SCOPE)
  set(${out}_VERSION ${version} PARENT_SCOPE)
endfunction()

set(tessera_llvm_VERSION "")
if(TESSERA_CLANG_PLUGIN)
  if(TESSERA_LLVM_ROOT)
    tessera_probe_llvm(tessera_llvm ${TESSERA_LLVM_ROOT})
  else()
    foreach(major IN LISTS tessera_llvm_versions)
      foreach(prefix /usr/lib/llvm-${major} /usr/lib64/llvm${major} /usr/lib/llvm${major})
        if(NOT tessera_llvm_VERSION)
          tessera_probe_llvm(tessera_llvm ${prefix})
        endif()
      endforeach()
    endforeach()
    if(NOT tessera_llvm_VERSION)
      tessera_probe_llvm(tessera_llvm /usr)
    endif()
  endif()
endif()

# What every cached kernel depends on beside its text: the sources that compile, link and store it. The
# plugin's name ends in their hash, so that a runtime loads no other, and what one build compiled serves all.
set(tessera_jit_sources clang_plugin.h clang_plugin.cc jit_compiler.cc elf_loader.cc
  elf_symbols.cc kernel_cache.cc jit.cc)
set(tessera_jit_text "")
foreach(source ${tessera_jit_sources})
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/runtime/${source})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(SHA256 ${path} hash)
  string(APPEND tessera_jit_text ${hash})
endforeach()
string(SHA256 tessera_jit_build "${tessera_jit_text}")
string(SUBSTRING ${tessera_jit_build} 0 16 tessera_jit_build)
set_source_files_properties(runtime/kernel_cache.cc PROPERTIES
  COMPILE_DEFINITIONS "TESSERA_JIT_BUILD=\"${tessera_jit_build}\"")

# Where the runtime looks for the plugin, and the libraries whose change must miss the cache.
include(GNUInstallDirs)
set(tessera_plugin_dirs "${CMAKE_CURRENT_BINARY_DIR}:${CMAKE_INSTALL_FULL_LIBDIR}/tessera")
set_source_files_properties(runtime/jit_compiler.cc PROPERTIES COMPILE_DEFINITIONS
  "TESSERA_JIT_BUILD=\"${tessera_jit_build}\";TESSERA_PLUGIN_DIRS=\"${tessera_plugin_dirs}\";TESSERA_PLUGIN_LIBRARIES=\"${tessera_llvm_CLANG}:${tessera_llvm_LLVM}\"")

if(NOT tessera_llvm_VERSION)
  message(STATUS "tessera: no Clang plugin (wants libclang-N-dev and llvm-N-dev, N in 14..22); "
    "kernels compile in a child clang")
  return()
endif()
message(STATUS "tessera: Clang plugin with LLVM ${tessera_llvm_VERSION}")
add_library(tessera_clang MODULE runtime/clang_plugin.cc)
set_target_properties(tessera_clang PROPERTIES PREFIX "" OUTPUT_NAME tessera_clang-${tessera_jit_build}
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
  CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_include_directories(tessera_clang PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(tessera_clang SYSTEM PRIVATE ${tessera_llvm_INCLUDE})
target_compile_features(tessera_clang PRIVATE cxx_std_20)
target_compile_options(tessera_clang PRIVATE ${tessera_warnings})
target_link_libraries(tessera_clang PRIVATE ${tessera_llvm_CLANG} ${tessera_llvm_LLVM})
