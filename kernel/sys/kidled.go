// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package sys

// KidledStopped says why kidled, which looks for pages that nobody touches, tells nothing of a cgroup and of those below it; empty while it does,
// and where nobody knows (Anolis, Documentation/vm/kidled.rst):
//
//	/sys/kernel/mm/kidled/scan_period_in_seconds   0: it does not run
//	/sys/kernel/mm/kidled/use_hierarchy            0: a cgroup counts its own pages only
func (fs FS) KidledStopped() string {
	for _, f := range [...]struct{ file, why string }{
		{"scan_period_in_seconds", "kidled is stopped"}, {"use_hierarchy", "kidled leaves out what is below a cgroup"},
	} {
		if n, err := fs.intAt("kernel", "mm", "kidled", f.file); err == nil && n == 0 {
			return f.why + ": " + fs.Path("kernel", "mm", "kidled", f.file) + " is 0"
		}
	}
	return ""
}
