/* What libmicrohttpd would have of GnuTLS, where it is linked into the program: it was built with
 * TLS, which probefs-web never asks for, and GnuTLS can't be had to link statically. A later
 * libmicrohttpd that wants another function isn't linked without a word: the linker says which. */
#include <stdlib.h>

#define NEVER_CALLED(name) \
 void gnutls_##name(void); \
 void gnutls_##name(void) { abort(); }

NEVER_CALLED(alpn_set_protocols)
NEVER_CALLED(bye)
NEVER_CALLED(certificate_allocate_credentials)
NEVER_CALLED(certificate_free_credentials)
NEVER_CALLED(certificate_server_set_request)
NEVER_CALLED(certificate_set_dh_params)
NEVER_CALLED(certificate_set_retrieve_function2)
NEVER_CALLED(certificate_set_retrieve_function3)
NEVER_CALLED(certificate_set_x509_key_mem)
NEVER_CALLED(certificate_set_x509_key_mem2)
NEVER_CALLED(certificate_set_x509_trust_mem)
NEVER_CALLED(cipher_get)
NEVER_CALLED(credentials_set)
NEVER_CALLED(deinit)
NEVER_CALLED(dh_params_deinit)
NEVER_CALLED(dh_params_import_pkcs3)
NEVER_CALLED(dh_params_init)
NEVER_CALLED(handshake)
NEVER_CALLED(init)
NEVER_CALLED(malloc)
NEVER_CALLED(priority_deinit)
NEVER_CALLED(priority_init)
NEVER_CALLED(priority_set)
NEVER_CALLED(protocol_get_version)
NEVER_CALLED(psk_allocate_server_credentials)
NEVER_CALLED(psk_free_server_credentials)
NEVER_CALLED(psk_set_server_credentials_function)
NEVER_CALLED(record_check_pending)
NEVER_CALLED(record_get_direction)
NEVER_CALLED(record_recv)
NEVER_CALLED(record_send)
NEVER_CALLED(session_get_ptr)
NEVER_CALLED(session_set_ptr)
NEVER_CALLED(strerror)
NEVER_CALLED(transport_set_int2)

/* These two are, as the program begins and ends. */
int gnutls_global_init(void);
void gnutls_global_deinit(void);

int gnutls_global_init(void) { return 0; }
void gnutls_global_deinit(void) {}
