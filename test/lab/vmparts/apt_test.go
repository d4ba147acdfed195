// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import "testing"

func TestMirrorOf(t *testing.T) {
	t.Parallel()
	const uris = "'http://vendor.example/dists/stable-vendor/InRelease' a 0 \n" +
		"'http://mirror.example/security/dists/bookworm-security/InRelease' b 0 \n" +
		"'http://mirror.example/debian/dists/bookworm/InRelease' c 0 \n" +
		"'http://mirror.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' d 0 \n"
	if got, err := mirrorOf(uris); err != nil || got != "http://mirror.example/debian" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := mirrorOf("'http://vendor.example/dists/noble/InRelease' a 0 \n"); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}
