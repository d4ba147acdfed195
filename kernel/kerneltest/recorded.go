// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package kerneltest

import (
	"embed"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/koord-rt/koord-rt/kernel/root"
)

// records are the accounting files of whole machines; each archive's comment says where it is from.
//
//go:embed recorded/*.txtar
var records embed.FS

// Record is one reading of a recorded machine, laid out in a directory.
type Record struct {
	Roots root.Roots
	dir   string
}

// Recorded lays out the machine of an archive in recorded/, "6.18-v1" or "6.12-v2": what /proc, /sys and the cgroups of a few pods
// showed at one moment.
func Recorded(t testing.TB, name string) *Record {
	t.Helper()
	dir := t.TempDir()
	r := &Record{dir: dir, Roots: root.Roots{
		Cgroup: dir + "/sys/fs/cgroup", Proc: dir + "/proc", Sys: dir + "/sys", Resctrl: dir + "/sys/fs/resctrl", Dev: dir + "/dev",
	}}
	r.Show(t, name)
	return r
}

// Show puts the files of an archive in the place of those that are there: "6.18-v1+1s" is the same machine a second later.
func (r *Record) Show(t testing.TB, name string) {
	t.Helper()
	b, err := records.ReadFile("recorded/" + name + ".txtar")
	must(t, err)
	for _, f := range txtar.Parse(b).Files {
		r.Put(t, f.Name, string(f.Data))
	}
}

// Put writes one file, named as in the archives: "proc/stat". A reader that has it open sees the new content.
func (r *Record) Put(t testing.TB, name, content string) {
	t.Helper()
	path := filepath.Join(r.dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644)) //nolint:gosec // a test's own directory
}

// Remove takes a file or a directory away.
func (r *Record) Remove(t testing.TB, name string) {
	t.Helper()
	must(t, os.RemoveAll(filepath.Join(r.dir, name)))
}
