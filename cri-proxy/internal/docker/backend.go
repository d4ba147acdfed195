// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	engine "github.com/koord-rt/koord-rt/adapt/docker"
)

// maxReply bounds what is read of a reply that is decoded.
const maxReply = 8 << 20

// ErrNoContainer is the daemon's "no such container".
var ErrNoContainer = errors.New("no such container")

// Backend asks the daemon. Every request has a connection of its own: none can be stale after the daemon's restart.
type Backend struct {
	path string
	tr   *http.Transport
}

// NewBackend takes the path of dockerd's socket.
func NewBackend(path string) *Backend {
	b := &Backend{path: path}
	b.tr = &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dial(ctx) },
		DisableKeepAlives:  true,
		DisableCompression: true,
		MaxIdleConns:       1,
	}
	return b
}

func (b *Backend) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", b.path)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// get reads a JSON reply.
func (b *Backend) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return b.call(ctx, http.MethodGet, path, query)
}

func (b *Backend) call(ctx context.Context, method, path string, query url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: "docker", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := b.tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent, http.StatusNotModified:
	case http.StatusNotFound:
		return nil, ErrNoContainer
	default:
		return nil, fmt.Errorf("the daemon answers %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err == nil && len(data) > maxReply {
		err = fmt.Errorf("reply above %d bytes", maxReply)
	}
	return data, err
}

// Version is the daemon's release: "20.10.24+dfsg1".
func (b *Backend) Version(ctx context.Context) (string, error) {
	data, err := b.get(ctx, "/version", nil)
	if err != nil {
		return "", fmt.Errorf("ask the Docker daemon for its version: %w", err)
	}
	v, err := engine.ParseVersion(data)
	if err != nil {
		return "", fmt.Errorf("ask the Docker daemon for its version: %w", err)
	}
	return v, nil
}

// Stop ends a container by id at once. One that has ended, or is gone, is no error.
func (b *Backend) Stop(ctx context.Context, id string) error {
	_, err := b.call(ctx, http.MethodPost, "/containers/"+id+"/stop", url.Values{"t": {"0"}})
	if err != nil && !errors.Is(err, ErrNoContainer) {
		return fmt.Errorf("stop container %.64s: %w", id, err)
	}
	return nil
}

// Inspect reads one container by id, prefix or name. A missing one is ErrNoContainer.
func (b *Backend) Inspect(ctx context.Context, id string) (*engine.Inspect, error) {
	data, err := b.get(ctx, "/containers/"+id+"/json", nil)
	if err != nil {
		return nil, fmt.Errorf("inspect container %.64s: %w", id, err)
	}
	in, err := engine.ParseInspect(data)
	if err != nil {
		return nil, fmt.Errorf("inspect container %.64s: %w", id, err)
	}
	return in, nil
}

// List reads every container of Kubernetes, sandboxes and stopped ones included: what a decision engine starts from. One
// that goes away meanwhile is left out; with another error what could be read is returned too.
func (b *Backend) List(ctx context.Context) ([]*engine.Inspect, error) {
	filters := `{"label":["` + engine.LabelType + `"]}`
	data, err := b.get(ctx, "/containers/json", url.Values{"all": {"1"}, "filters": {filters}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	ids, err := engine.ParseList(data)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make([]*engine.Inspect, 0, len(ids))
	var errs []error
	for _, id := range ids {
		in, err := b.Inspect(ctx, id)
		switch {
		case errors.Is(err, ErrNoContainer):
		case err != nil:
			errs = append(errs, err)
		case in.Type() != "":
			out = append(out, in)
		}
	}
	return out, errors.Join(errs...)
}
