# What cmake --install puts in place: headers, libraries, the Clang plugin, and find_package(tessera).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(tessera INTERFACE)  # all of it, as tessera::tessera
add_library(tessera::tessera ALIAS tessera)
target_link_libraries(tessera INTERFACE tessera_runtime)
set_target_properties(tessera_options PROPERTIES EXPORT_NAME options)

set(folders graph schedule codegen runtime)
set(libraries tessera tessera_options)
foreach(folder IN LISTS folders)
  list(APPEND libraries tessera_${folder})
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera
    FILES_MATCHING PATTERN *.h PATTERN *.def PATTERN prelude EXCLUDE)
endforeach()
install(TARGETS ${libraries} EXPORT tesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET tessera_clang)
  install(TARGETS tessera_clang LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package_dir})
set(tessera_plugin_dir ${CMAKE_INSTALL_LIBDIR}/tessera)
configure_package_config_file(cmake/tesseraConfig.cmake.in cmake/tesseraConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS tessera_plugin_dir)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/cmake/tesseraConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cmake/tesseraConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/cmake/tesseraConfigVersion.cmake DESTINATION ${package_dir})
