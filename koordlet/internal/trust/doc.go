// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package trust makes HTTP clients that know whom they trust and who they are: a trust anchor from a file, and a bearer
// token or a client certificate from files that others rotate.
//
// Inputs are paths or PEM bytes; the output is a Client that reads files again when they have changed. A certificate that
// is not signed by anybody we know is pinned by being the anchor itself, as a kubelet's usually is; only an explicit
// setting, which [Client.Weakness] shows, gives verification up. It must not import client-go, apimachinery or another
// room of koordlet.
package trust
