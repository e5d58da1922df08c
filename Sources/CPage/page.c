#include "include/CPage.h"

// #embed is C23, which this compiler has as an extension of earlier versions.
#pragma clang diagnostic ignored "-Wc23-extensions"

// One document, in this order: styles, then the markup, then the scripts, which share one scope.
static const unsigned char page[] = {
#embed "page/head.html" suffix(,)
#embed "page/base.css" suffix(,)
#embed "page/body.html" suffix(,)
#embed "page/dom.js" suffix(,)
#embed "page/app.js" suffix(,)
#embed "page/tail.html"
};

const unsigned char *wa_page(size_t *length) {
    *length = sizeof page;
    return page;
}
