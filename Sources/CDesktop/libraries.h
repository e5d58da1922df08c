// The functions that are looked up in each library, as typed pointers: types come from the headers.
#ifndef WORKSPACE_AGENT_CDESKTOP_LIBRARIES_H
#define WORKSPACE_AGENT_CDESKTOP_LIBRARIES_H

#include <png.h>
#include <rfb/rfbclient.h>
#include <xcb/xcb.h>
#include <xkbcommon/xkbcommon.h>
#include <zlib.h>

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
    X(png_error) \
    X(png_image_begin_read_from_memory) \
    X(png_image_finish_read) \
    X(png_image_free)

#define WD_XKB_FUNCTIONS(X) \
    X(xkb_keysym_from_name) \
    X(xkb_keysym_get_name) \
    X(xkb_keysym_to_utf32)

#define WD_ZLIB_FUNCTIONS(X) \
    X(inflateInit_) \
    X(inflate) \
    X(inflateEnd)

#define WD_XCB_FUNCTIONS(X) \
    X(xcb_connect_to_fd) \
    X(xcb_connection_has_error) \
    X(xcb_disconnect) \
    X(xcb_get_setup) \
    X(xcb_setup_roots_iterator) \
    X(xcb_intern_atom) \
    X(xcb_intern_atom_reply) \
    X(xcb_get_keyboard_mapping) \
    X(xcb_get_keyboard_mapping_reply) \
    X(xcb_get_keyboard_mapping_keysyms) \
    X(xcb_get_property) \
    X(xcb_get_property_reply) \
    X(xcb_get_property_value) \
    X(xcb_get_property_value_length) \
    X(xcb_get_geometry) \
    X(xcb_get_geometry_reply) \
    X(xcb_translate_coordinates) \
    X(xcb_translate_coordinates_reply) \
    X(xcb_query_pointer) \
    X(xcb_query_pointer_reply) \
    X(xcb_change_window_attributes) \
    X(xcb_send_event) \
    X(xcb_wait_for_event) \
    X(xcb_poll_for_queued_event)

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
struct wd_zlib_api {
    WD_ZLIB_FUNCTIONS(WD_MEMBER)
};
struct wd_xcb_api {
    WD_XCB_FUNCTIONS(WD_MEMBER)
};
#undef WD_MEMBER

// Filled by wd_load() and never changed afterwards.
extern struct wd_vnc_api wd_vnc;
extern struct wd_png_api wd_png;
extern struct wd_xkb_api wd_xkb;
extern struct wd_zlib_api wd_zlib;
extern struct wd_xcb_api wd_xcb;

#endif
