// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"maps"
	"testing"
)

func TestParseLdd(t *testing.T) {
	t.Parallel()
	const libm, loader = "\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f7bc8477000)\n", "\t/lib64/ld-linux-x86-64.so.2 (0x00007f7bc96af000)\n"
	for name, c := range map[string]struct {
		out  string
		want map[string]string
	}{
		"all":         {"\tlinux-vdso.so.1 (0x00007f7bc96ad000)\n" + libm + loader, map[string]string{"libm.so.6": "/lib/x86_64-linux-gnu/libm.so.6", "ld.so": "/lib64/ld-linux-x86-64.so.2"}},
		"one missing": {"\tlibJudy.so.1 => not found\n" + libm + loader, nil},
		"static":      {"\tstatically linked\n", nil},
	} {
		got, err := parseLdd(c.out)
		if !maps.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}
