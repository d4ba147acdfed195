// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package guestcfg_test

import (
	"testing"

	"github.com/koord-rt/koord-rt/test/lab/vm/guestcfg"
)

// TestSerials: the guest tells its disks apart by these. A virtio disk has 20 bytes for one (VIRTIO_BLK_ID_BYTES): a longer one comes cut off.
func TestSerials(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, serial := range []string{guestcfg.DiskSerial, guestcfg.OutSerial, guestcfg.RootSerial, guestcfg.SlowSerial} {
		if serial == "" || len(serial) > 20 || seen[serial] {
			t.Errorf("serial number %q: want 1 to 20 bytes, each once", serial)
		}
		seen[serial] = true
	}
}
