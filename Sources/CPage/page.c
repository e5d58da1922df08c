#include "include/CPage.h"

// #embed is C23, which this compiler has as an extension of earlier versions.
#pragma clang diagnostic ignored "-Wc23-extensions"

// One document, in this order: styles, then the markup, then the scripts, which share one scope.
static const unsigned char page[] = {
#embed "page/head.html" suffix(,)
#embed "page/base.css" suffix(,)
#embed "page/layout.css" suffix(,)
#embed "page/sections.css" suffix(,)
#embed "page/terminal.css" suffix(,)
#embed "page/body.html" suffix(,)
#embed "page/dom.js" suffix(,)
#embed "page/api.js" suffix(,)
#embed "page/events.js" suffix(,)
#embed "page/ansi.js" suffix(,)
#embed "page/output.js" suffix(,)
#embed "page/rows.js" suffix(,)
#embed "page/terminal-parser.js" suffix(,)
#embed "page/terminal-grid.js" suffix(,)
#embed "page/terminal-sequences.js" suffix(,)
#embed "page/terminal.js" suffix(,)
#embed "page/terminal-view.js" suffix(,)
#embed "page/app.js" suffix(,)
#embed "page/plot.js" suffix(,)
#embed "page/overview.js" suffix(,)
#embed "page/processes.js" suffix(,)
#embed "page/process-detail.js" suffix(,)
#embed "page/graph.js" suffix(,)
#embed "page/units.js" suffix(,)
#embed "page/diff.js" suffix(,)
#embed "page/changes.js" suffix(,)
#embed "page/files.js" suffix(,)
#embed "page/file-view.js" suffix(,)
#embed "page/file-search.js" suffix(,)
#embed "page/desktop.js" suffix(,)
#embed "page/scripts.js" suffix(,)
#embed "page/tailnet.js" suffix(,)
#embed "page/log.js" suffix(,)
#embed "page/begin.js" suffix(,)
#embed "page/tail.html"
};

const unsigned char *wa_page(size_t *length) {
    *length = sizeof page;
    return page;
}
