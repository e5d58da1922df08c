// libvncclient, libpng, libxkbcommon, zlib and libxcb behind a few calls. The libraries are loaded with dlopen at
// the first use of the desktop, so that a daemon whose desktop is never used loads none of them.
#ifndef WORKSPACE_AGENT_CDESKTOP_H
#define WORKSPACE_AGENT_CDESKTOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

// --- Libraries -----------------------------------------------------------------------------------

enum wd_library {
    WD_VNCCLIENT = 0,
    WD_PNG = 1,
    WD_XKBCOMMON = 2,
    WD_ZLIB = 3,
    WD_XCB = 4,
};

/// Loads a library, which stays loaded until the process ends. Any thread, any number of times; a
/// library that was missing is looked for again. False when it is not installed or lacks a function; `why` then gets
/// up to `capacity` bytes of explanation.
bool wd_load(enum wd_library library, char *why, size_t capacity);

// --- Keys (needs WD_XKBCOMMON) -------------------------------------------------------------------

/// The keysym of a name such as `Return`; 0 when there is none.
uint32_t wd_keysym_from_name(const char *name, bool ignore_case);
/// The code point that a keysym stands for; 0 when it stands for none.
uint32_t wd_keysym_to_scalar(uint32_t keysym);
/// The name of a keysym, `U` and the code point for a character that has none. False when there is none.
bool wd_keysym_name(uint32_t keysym, char *name, size_t capacity);

// --- Pictures ------------------------------------------------------------------------------------

/// Writes the base64 of `count` bytes: (count + 2) / 3 * 4 characters, no NUL. NULL with a count of 0.
void wd_base64(const void *_Nullable bytes, size_t count, void *_Nullable text);

/// Bytes from malloc(); the receiver frees them.
struct wd_bytes {
    uint8_t *_Nullable bytes;
    size_t count;
};

/// Encodes a picture of 4 bytes a pixel (blue, green, red, unused), whose rows are `row_pixels` apart, scaled
/// to `out_width` by `out_height`, as a PNG (RGB, 8 bit). Needs WD_PNG. All sides at least 1. False when libpng
/// or the memory fails; `why` then gets up to `capacity` bytes of explanation and `out` is empty.
bool wd_png_encode(const uint8_t *bgrx, int row_pixels, int width, int height, int out_width,
                   int out_height, struct wd_bytes *out, char *why, size_t capacity);

/// Decodes a PNG to 4 bytes a pixel (blue, green, red, alpha). Needs WD_PNG. False when it is none or the
/// memory fails; `why` then gets up to `capacity` bytes of explanation and `out` is empty.
bool wd_png_decode(const uint8_t *png, size_t count, struct wd_bytes *out, int *width, int *height,
                   char *why, size_t capacity);

/// Scales rows on demand: the mean of the covered area downwards, linear upwards, per axis.
struct wd_scaler;
struct wd_scaler *_Nullable wd_scaler_new(const uint8_t *bgrx, int row_pixels, int width, int height,
                                          int out_width, int out_height);
/// Writes row `y` of the result, 3 bytes a pixel (red, green, blue).
void wd_scaler_row(struct wd_scaler *scaler, int y, uint8_t *rgb);
void wd_scaler_free(struct wd_scaler *_Nullable scaler);

// --- The clipboard (needs WD_ZLIB) ---------------------------------------------------------------

/// Decodes the text in a message of the extended clipboard: UTF-8 with LF line ends and no NUL. False when
/// it has more than `limit` bytes or cannot be decoded; `text` is then empty.
bool wd_clipboard_decode(const uint8_t *_Nullable bytes, size_t count, size_t limit, struct wd_bytes *text);

// --- RFB (needs WD_VNCCLIENT) --------------------------------------------------------------------

/// A connection to a VNC server. Everything on one thread.
struct wd_rfb;

/// What the server has reported so far.
struct wd_rfb_state {
    int width, height;
    uint64_t resizes;
    uint64_t updates;         ///< framebuffer updates that were read completely
    uint64_t pixels;          ///< pixels that were received since the last request
    bool has_fence;           ///< the server sent a fence of its own
    uint64_t fence_answers;
    uint32_t fence_answer;    ///< the payload of the last one
    uint32_t clipboard;       ///< flags of the server's extended clipboard, 0 without one
    uint64_t clipboard_requests;  ///< how often the server requested our text
    uint64_t clipboard_offers;    ///< how often the server announced that a program owns the clipboard, or none
    bool clipboard_offered;       ///< the last one: a program owns it, and has text
    uint64_t clipboard_texts;     ///< how often the server sent the text of the clipboard
    uint64_t pointer_moves;   ///< how often the server reported a position of the pointer
    int pointer_x, pointer_y;
    bool resizable;           ///< the server knows requests for another size
    uint32_t screen_id, screen_flags;  ///< of the server's first screen
    uint64_t resize_answers;
    int resize_status;        ///< of the last answer: 0 done, 1 prohibited, 2 no resources, 3 invalid
};

enum {
    WD_CLIPBOARD_TEXT = 1 << 0,
    WD_CLIPBOARD_CAPS = 1 << 24,
    WD_CLIPBOARD_REQUEST = 1 << 25,
    WD_CLIPBOARD_PEEK = 1 << 26,
    WD_CLIPBOARD_NOTIFY = 1 << 27,
    WD_CLIPBOARD_PROVIDE = 1 << 28,
};

/// Blocks SIGPIPE in the calling thread: the write to a server that is gone fails with an error instead.
void wd_block_sigpipe(void);
/// Does the RFB handshake on a connected, non-blocking socket below 1024 (libvncclient waits with
/// select()) and takes ownership of it, also on failure. Shared, security None, raw. Waits at most
/// `read_seconds` for each answer, then and later. NULL on failure; `why` gets the explanation.
struct wd_rfb *_Nullable wd_rfb_open(int fd, unsigned read_seconds, char *why, size_t capacity);
/// Closes the socket and frees everything.
void wd_rfb_close(struct wd_rfb *rfb);
const struct wd_rfb_state *wd_rfb_get_state(const struct wd_rfb *rfb);
/// Waits until one of two descriptors can be read or its peer is gone: a set of bits, 1 for `first` and 2
/// for `second`. For ever with negative nanoseconds.
int wd_wait(int first, int second, int64_t nanoseconds);
/// Whether bytes of a message are buffered already, so that the socket need not be waited for.
bool wd_rfb_buffered(const struct wd_rfb *rfb);
/// Reads one message, waiting for the rest of one that has begun. False when the connection is lost.
bool wd_rfb_read(struct wd_rfb *rfb);
/// Sends bytes. May block while the server does not read: wait until the socket is writable, and
/// send few bytes at once. False when the connection is lost.
bool wd_rfb_write(struct wd_rfb *rfb, const void *bytes, size_t count);
/// Requests an area, or only the parts of it that `changed`, and counts its pixels from 0.
bool wd_rfb_request(struct wd_rfb *rfb, bool changed, int x, int y, int width, int height);
/// Takes the clipboard's text that came last: as wd_clipboard_decode(). False, too, while none has come.
bool wd_rfb_take_clipboard(struct wd_rfb *rfb, size_t limit, struct wd_bytes *text);
/// Writes received pixels to `bgrx` (4 bytes a pixel, width * height of the present size), until NULL
/// is set here or the size changes.
void wd_rfb_set_target(struct wd_rfb *rfb, uint8_t *_Nullable bgrx);
/// Why the connection was lost, for a person.
const char *wd_rfb_why(const struct wd_rfb *rfb);

// --- Windows (needs WD_XCB) ----------------------------------------------------------------------

/// A connection to an X server: its first screen and what the window manager says there (EWMH). One
/// thread at a time. Every call may block until the server answers; shutdown() of the socket ends it.
struct wd_x;

enum {
    WD_X_WINDOWS = 1000,  ///< windows that are listed at most
};

enum wd_x_result {
    WD_X_DONE,
    WD_X_NO_MANAGER,  ///< no window manager announces itself
    WD_X_LOST,        ///< the connection is lost, or the memory is used up
};

enum wd_x_encoding {
    WD_X_UTF8,
    WD_X_LATIN1,
    WD_X_COMPOUND_TEXT,
};

/// Text as a program set it: any bytes, at most 4096.
struct wd_x_text {
    const uint8_t *_Nullable bytes;
    size_t count;
    enum wd_x_encoding encoding;
    bool is_cut;  ///< there was more
};

struct wd_x_window {
    uint32_t id;
    uint32_t pid;              ///< as the program says, unchecked; 0 for none
    int x, y, width, height;   ///< in pixels of the screen, without the frame
    bool is_active;
    struct wd_x_text title;
    struct wd_x_text class_name;
};

enum wd_x_message {
    WD_X_ACTIVATE,
    WD_X_CLOSE,
};

/// For a connected socket, which stays the caller's and open until wd_x_free(). NULL when no descriptor or
/// memory is left.
struct wd_x *_Nullable wd_x_new(int socket);
void wd_x_free(struct wd_x *x);
/// Says hello, without a cookie, and asks for the events that wd_x_wait() waits for. The first call of all.
bool wd_x_connect(struct wd_x *x);
/// Lists the windows of the window manager from the bottom to the top, or from the oldest to the newest where it
/// keeps no stacking order; the last WD_X_WINDOWS of them. The list is valid until the next call or wd_x_free().
/// @param follow wd_x_wait() returns for their titles, too.
enum wd_x_result wd_x_windows(struct wd_x *x, bool follow, const struct wd_x_window *_Nullable *_Nonnull list,
                              size_t *count);
/// Asks the window manager to do something with a window; returns when the server has passed that on.
bool wd_x_send(struct wd_x *x, enum wd_x_message message, uint32_t window);
/// Waits until something that wd_x_windows() reports may have changed since its last call. False when the
/// connection is lost.
bool wd_x_wait(struct wd_x *x);
/// Where the pointer is.
bool wd_x_pointer(struct wd_x *x, int *left, int *top);
/// The keysyms that have a keycode, some of them more than once, from malloc(); the receiver frees them.
/// @param spare gets the number of keycodes without any keysym.
/// NULL when the connection is lost or no memory is left.
uint32_t *_Nullable wd_x_keyboard(struct wd_x *x, size_t *count, size_t *spare);

#pragma clang assume_nonnull end

#endif
