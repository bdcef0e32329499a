// Style and script of the HTML figure. CMake embeds viewer.css and viewer.js as text. Read by
// render_html.cpp only.
#pragma once

namespace hetu {

extern const char* const kViewerStyle;
extern const char* const kViewerScript;

}  // namespace hetu
