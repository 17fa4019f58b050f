# The programs of tools/gpu-bundle: the objects of their namesakes, linked with archives alone, so that
# they need nothing of the machine they run on but the C library. Built only on request (gpu-bundle).

# The archives beside abseil's shared libraries (or in their place), in any order.
get_target_property(location absl::base LOCATION)
get_filename_component(folder ${location} DIRECTORY)
file(GLOB tessera_absl_archives ${folder}/libabsl_*.a)
list(FILTER tessera_absl_archives EXCLUDE REGEX "absl_(flags|log_)")
find_library(TESSERA_GTEST_ARCHIVE libgtest.a)
find_library(TESSERA_GMOCK_ARCHIVE libgmock.a)
mark_as_advanced(TESSERA_GTEST_ARCHIVE TESSERA_GMOCK_ARCHIVE)
if(NOT tessera_absl_archives OR NOT TESSERA_GTEST_ARCHIVE OR NOT TESSERA_GMOCK_ARCHIVE)
  add_custom_target(gpu-bundle COMMAND ${CMAKE_COMMAND} -E echo
    "tools/gpu-bundle: no static libraries of abseil or GoogleTest" COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

add_custom_target(gpu-bundle)
function(tessera_portable from)
  set(name portable-${from})
  set(stub ${CMAKE_CURRENT_BINARY_DIR}/gpu_bundle_stub.cc)
  if(NOT EXISTS ${stub})  # a program needs a source of its own
    file(WRITE ${stub} "")
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${stub} $<TARGET_OBJECTS:${from}>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable)
  set(archives "")
  foreach(library ${ARGN} tessera_runtime tessera_codegen tessera_schedule tessera_graph)
    add_dependencies(${name} ${library})
    list(APPEND archives $<TARGET_FILE:${library}>)
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS $<TARGET_FILE:${library}>)
  endforeach()
  target_link_libraries(${name} PRIVATE -Wl,--start-group ${archives} ${tessera_absl_archives}
    ${TESSERA_GTEST_ARCHIVE} ${TESSERA_GMOCK_ARCHIVE} -Wl,--end-group
    -Wl,-z,muldefs  # the status library of Ubuntu 22.04 has constants of its header as its own
    -static-libstdc++ -static-libgcc -Wl,--gc-sections -s Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(gpu-bundle ${name})
endfunction()
tessera_portable(runtime_test tessera_test_support tessera_benchmarks tessera_llm)
tessera_portable(fuzz_test tessera_test_support)
tessera_portable(gpu-bench tessera_llm)
tessera_portable(llm tessera_llm_no_server tessera_llm)
tessera_portable(make-random-model tessera_llm)
