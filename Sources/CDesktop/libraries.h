// The functions that are looked up in each library, as typed pointers: types come from the headers.
#ifndef WORKSPACE_AGENT_CDESKTOP_LIBRARIES_H
#define WORKSPACE_AGENT_CDESKTOP_LIBRARIES_H

#include <png.h>
#include <rfb/rfbclient.h>
#include <xkbcommon/xkbcommon.h>

#define WD_VNC_FUNCTIONS(X) \
    X(rfbGetClient) \
    X(rfbClientCleanup) \
    X(InitialiseRFBConnection) \
    X(SetClientAuthSchemes) \
    X(HandleRFBServerMessage) \
    X(ReadFromRFBServer) \
    X(WriteToRFBServer)

#define WD_PNG_FUNCTIONS(X) \
    X(png_create_write_struct) \
    X(png_create_info_struct) \
    X(png_destroy_write_struct) \
    X(png_set_write_fn) \
    X(png_set_IHDR) \
    X(png_set_filter) \
    X(png_set_compression_level) \
    X(png_set_compression_strategy) \
    X(png_set_compression_buffer_size) \
    X(png_write_info) \
    X(png_write_row) \
    X(png_write_end) \
    X(png_get_io_ptr) \
    X(png_get_error_ptr) \
    X(png_error)

#define WD_XKB_FUNCTIONS(X) \
    X(xkb_keysym_from_name) \
    X(xkb_keysym_get_name) \
    X(xkb_keysym_to_utf32)

#define WD_MEMBER(name) __typeof__(&name) name;
struct wd_vnc_api {
    WD_VNC_FUNCTIONS(WD_MEMBER)
};
struct wd_png_api {
    WD_PNG_FUNCTIONS(WD_MEMBER)
};
struct wd_xkb_api {
    WD_XKB_FUNCTIONS(WD_MEMBER)
};
#undef WD_MEMBER

// Filled by wd_load() and never changed afterwards.
extern struct wd_vnc_api wd_vnc;
extern struct wd_png_api wd_png;
extern struct wd_xkb_api wd_xkb;

#endif
