// Style and script of the HTML picture: viewer.css and viewer.js as text, put there by CMake. Read
// by render_html.cpp only.
#pragma once

namespace hetu {

extern const char* const kViewerStyle;
extern const char* const kViewerScript;

}  // namespace hetu
