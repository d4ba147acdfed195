// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package registry

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLayer(t *testing.T) {
	t.Parallel()
	files := []File{
		{Name: "bin", Dir: true, Mode: 0o755},
		{Name: "bin/a", Mode: 0o4755, Data: []byte("data")},
		{Name: "bin/b", Mode: 0o4755, Link: "bin/a"},
	}
	layer, err := Layer(files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Layer(files)
	if err != nil || !bytes.Equal(layer, again) {
		t.Errorf("the same files give other bytes, %v", err)
	}
	want := []tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "bin/a", Mode: 0o4755, Size: 4},
		{Typeflag: tar.TypeLink, Name: "bin/b", Mode: 0o4755, Linkname: "bin/a"},
	}
	r := tar.NewReader(bytes.NewReader(layer))
	for _, w := range want {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != w.Typeflag || h.Name != w.Name || h.Mode != w.Mode || h.Size != w.Size || h.Linkname != w.Linkname || h.Uid != 0 {
			t.Errorf("entry %+v, want %+v", h, w)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last entry: %v", err)
	}
}

// The manifest names configuration and layers by the digests of their bytes, and the
// configuration names the same layers.
func TestDocuments(t *testing.T) {
	t.Parallel()
	layer := []byte("layer")
	manifest, config, err := Image{Layers: [][]byte{layer}, User: "1003:users", Entrypoint: []string{"/a"}}.documents()
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		MediaType string
		Config    descriptor
		Layers    []descriptor
	}
	var c ociConfig
	if err := errors.Join(json.Unmarshal(manifest, &m), json.Unmarshal(config, &c)); err != nil {
		t.Fatal(err)
	}
	l := describe(typeLayer, layer)
	if m.MediaType != typeManifest || m.Config != describe(typeConfig, config) || len(m.Layers) != 1 || m.Layers[0] != l {
		t.Errorf("manifest %s", manifest)
	}
	if c.Config.User != "1003:users" || len(c.Config.Entrypoint) != 1 || len(c.RootFS.DiffIDs) != 1 || c.RootFS.DiffIDs[0] != l.Digest {
		t.Errorf("configuration %s", config)
	}
	if !strings.HasPrefix(l.Digest, "sha256:") || len(l.Digest) != 71 {
		t.Errorf("digest %s", l.Digest)
	}
}

func TestWriteHosts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := WriteHosts(dir, "127.0.0.1:5000"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "_default", "hosts.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"server = \"http://127.0.0.1:5000\"\n", "[host.\"http://127.0.0.1:5000\"]\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
