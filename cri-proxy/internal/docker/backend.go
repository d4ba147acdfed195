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

// errAnswer is an answer of the daemon that says that it cannot.
var errAnswer = errors.New("the daemon answers")

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
		return nil, fmt.Errorf("%w %s", errAnswer, resp.Status)
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

// Ping asks the daemon for a sign of life. Its version would cost it two processes each time.
func (b *Backend) Ping(ctx context.Context) error {
	if _, err := b.get(ctx, "/_ping", nil); err != nil {
		return fmt.Errorf("ask the Docker daemon for a sign of life: %w", err)
	}
	return nil
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
// that goes away meanwhile is left out; unread are those whose record the daemon cannot give, by id: with one broken
// container it goes on.
func (b *Backend) List(ctx context.Context) (records []*engine.Inspect, unread map[string]error, err error) {
	filters := `{"label":["` + engine.LabelType + `"]}`
	data, err := b.get(ctx, "/containers/json", url.Values{"all": {"1"}, "filters": {filters}})
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	ids, err := engine.ParseList(data)
	if err != nil {
		return nil, nil, fmt.Errorf("list containers: %w", err)
	}
	records = make([]*engine.Inspect, 0, len(ids))
	for _, id := range ids {
		in, err := b.Inspect(ctx, id)
		switch {
		case errors.Is(err, ErrNoContainer):
		case errors.Is(err, errAnswer), errors.Is(err, engine.ErrBody):
			if unread == nil {
				unread = map[string]error{}
			}
			unread[id] = err
		case err != nil:
			return nil, nil, fmt.Errorf("list containers: %w", err)
		case in.Type() != "":
			records = append(records, in)
		}
	}
	return records, unread, nil
}
