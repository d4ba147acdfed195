// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package registry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Push uploads an image by the distribution API and returns its digest. The caller
// must be in the registry's network namespace.
// https://github.com/opencontainers/distribution-spec
func (r *Registry) Push(ctx context.Context, i Image) (string, error) {
	digest, err := r.push(ctx, i)
	if err != nil {
		return "", fmt.Errorf("push image %s:%s: %w", i.Repository, i.Tag, err)
	}
	return digest, nil
}

func (r *Registry) push(ctx context.Context, i Image) (string, error) {
	manifest, config, err := i.documents()
	if err != nil {
		return "", err
	}
	for _, blob := range append([][]byte{config}, i.Layers...) {
		if err := r.putBlob(ctx, i.Repository, blob); err != nil {
			return "", err
		}
	}
	at := fmt.Sprintf("http://%s/v2/%s/manifests/%s", r.Address, i.Repository, i.Tag)
	resp, err := request(ctx, http.MethodPut, at, typeManifest, manifest)
	if err != nil {
		return "", err
	}
	if err := finish(resp, http.StatusCreated); err != nil {
		return "", fmt.Errorf("put manifest: %w", err)
	}
	return describe(typeManifest, manifest).Digest, nil
}

// putBlob uploads a blob in one piece, unless the repository has it.
func (r *Registry) putBlob(ctx context.Context, repository string, blob []byte) error {
	digest := describe("", blob).Digest
	base := fmt.Sprintf("http://%s/v2/%s/blobs/", r.Address, repository)
	resp, err := request(ctx, http.MethodHead, base+digest, "", nil)
	if err != nil {
		return err
	}
	if finish(resp, http.StatusOK) == nil {
		return nil
	}
	if resp, err = request(ctx, http.MethodPost, base+"uploads/", "", nil); err != nil {
		return err
	}
	if err := finish(resp, http.StatusAccepted); err != nil {
		return fmt.Errorf("start upload: %w", err)
	}
	location, err := resp.Location() // absolute or relative to the request
	if err != nil {
		return fmt.Errorf("start upload: %w", err)
	}
	query := location.Query()
	query.Set("digest", digest)
	location.RawQuery = query.Encode()
	if resp, err = request(ctx, http.MethodPut, location.String(), "application/octet-stream", blob); err != nil {
		return err
	}
	if err := finish(resp, http.StatusCreated); err != nil {
		return fmt.Errorf("put blob: %w", err)
	}
	return nil
}

func request(ctx context.Context, method, at, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask registry: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask registry: %w", err)
	}
	return resp, nil
}

// finish reads the rest of an answer and checks its status.
func finish(resp *http.Response, want int) error {
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 2000))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != want {
		return fmt.Errorf("registry answered %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
