// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"time"
)

// Image is one image to push: an OCI image of uncompressed layers for this machine's architecture.
type Image struct {
	Repository string   // required: path without registry: team/name
	Tag        string   // required
	Layers     [][]byte // required: tars, lowest first
	User       string   // optional: user, uid, user:group or uid:gid
	Entrypoint []string // optional
	Cmd        []string // optional
}

// File of a layer: a regular file, a folder if Dir, a hard link if Link is set.
type File struct {
	Name string // required: bin/sh, without a leading slash
	Mode int64  // required: permission bits, set-uid included (04755)
	Dir  bool
	Link string // optional: name of an earlier file
	Data []byte
}

// Layer packs files as a tar, the same bytes for the same files. All belong to root.
func Layer(files []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)), ModTime: time.Unix(0, 0)}
		switch {
		case f.Dir:
			h.Typeflag, h.Name = tar.TypeDir, f.Name+"/"
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeLink, f.Link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write layer entry %s: %w", f.Name, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, fmt.Errorf("write layer entry %s: %w", f.Name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write layer: %w", err)
	}
	return b.Bytes(), nil
}

// Media types of the OCI image specification.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

func describe(mediaType string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(data)}
}

type ociConfig struct {
	Architecture string        `json:"architecture"`
	OS           string        `json:"os"`
	Config       ociExecConfig `json:"config"`
	RootFS       ociRootFS     `json:"rootfs"`
}

type ociExecConfig struct {
	User       string   `json:",omitempty"`
	Env        []string `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
}

type ociRootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// documents are the image's manifest and configuration:
// https://github.com/opencontainers/image-spec.
func (i Image) documents() (manifest, config []byte, err error) {
	c := ociConfig{
		Architecture: runtime.GOARCH, OS: "linux",
		Config: ociExecConfig{
			User: i.User, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Entrypoint: i.Entrypoint, Cmd: i.Cmd,
		},
		RootFS: ociRootFS{Type: "layers"},
	}
	var layers []descriptor
	for _, l := range i.Layers {
		d := describe(typeLayer, l)
		layers = append(layers, d)
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, d.Digest)
	}
	if config, err = json.Marshal(c); err != nil {
		return nil, nil, fmt.Errorf("encode image configuration: %w", err)
	}
	manifest, err = json.Marshal(struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}{2, typeManifest, describe(typeConfig, config), layers})
	if err != nil {
		return nil, nil, fmt.Errorf("encode image manifest: %w", err)
	}
	return manifest, config, nil
}
