# tessera_embed(target file symbol): the text of `file` becomes tessera::symbol, a std::string_view
# that a source of `target` declares as: namespace tessera { extern const std::string_view symbol; }
# The same file run with cmake -P writes that source from IN, OUT, NAME and SYMBOL.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(TESSERA_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
  function(tessera_embed target file symbol)
    get_filename_component(in ${file} ABSOLUTE)
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${in})
    set(out ${CMAKE_CURRENT_BINARY_DIR}/embed/${symbol}.cc)
    add_custom_command(OUTPUT ${out} DEPENDS ${in} ${TESSERA_EMBED_SCRIPT} VERBATIM
      COMMAND ${CMAKE_COMMAND} -DIN=${in} -DOUT=${out} -DNAME=${name} -DSYMBOL=${symbol}
        -P ${TESSERA_EMBED_SCRIPT} COMMENT "Embedding ${name}")
    target_sources(${target} PRIVATE ${out})
    set_source_files_properties(${out} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  endfunction()
  return()
endif()

file(READ "${IN}" text)
if(text MATCHES "\\)ts_embed\"")
  message(FATAL_ERROR "${NAME} contains )ts_embed\", which ends the raw string it is embedded as")
endif()
file(WRITE "${OUT}" "// The text of ${NAME}, embedded at build.
#include <string_view>

namespace tessera {
extern const std::string_view ${SYMBOL};
static constexpr char text[] = R\"ts_embed(${text})ts_embed\";
constinit const std::string_view ${SYMBOL}(text, sizeof(text) - 1);
}  // namespace tessera
")
