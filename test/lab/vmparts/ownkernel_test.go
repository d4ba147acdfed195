// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package vmparts

import (
	"slices"
	"strings"
	"testing"
)

// An own kernel is Debian's but for what is asked for, without modules and without what only debuggers and signatures need.
func TestOwnConfig(t *testing.T) {
	t.Parallel()
	debian := "# a comment\nCONFIG_SMP=y\nCONFIG_HZ=250\n# CONFIG_SCHED_CORE is not set\nCONFIG_VETH=m\nCONFIG_XFS_FS=m\nCONFIG_BLK_DEV_LOOP=m\n" +
		"CONFIG_DEBUG_INFO_BTF=y\n# CONFIG_DEBUG_INFO_NONE is not set\nCONFIG_SYSTEM_TRUSTED_KEYS=\"debian/certs.pem\"\n# CONFIG_KASAN is not set\n"
	got := strings.Split(strings.TrimSpace(ownConfig(debian)), "\n")
	for _, want := range []string{"# a comment", "CONFIG_SMP=y", "CONFIG_HZ=250", "# CONFIG_KASAN is not set", "CONFIG_SCHED_CORE=y", "CONFIG_VETH=y", "CONFIG_DEBUG_INFO_NONE=y"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not in %q", want, got)
		}
	}
	for _, line := range got {
		option, _, _ := strings.Cut(strings.TrimPrefix(line, "# "), "=")
		option = strings.TrimSuffix(option, " is not set")
		if slices.Contains([]string{"CONFIG_XFS_FS", "CONFIG_DEBUG_INFO_BTF", "CONFIG_SYSTEM_TRUSTED_KEYS"}, option) || strings.HasSuffix(line, "=m") {
			t.Errorf("%q is left", line)
		}
		if n := len(slices.DeleteFunc(slices.Clone(got), func(l string) bool { return l != line })); n != 1 {
			t.Errorf("%q stands %d times", line, n)
		}
	}
	if len(slices.DeleteFunc(slices.Clone(got), func(l string) bool { return !strings.Contains(l, "CONFIG_SCHED_CORE") })) != 1 {
		t.Errorf("SCHED_CORE is set and unset: %q", got)
	}
}
