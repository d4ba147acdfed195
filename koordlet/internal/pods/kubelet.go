// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package pods

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/koordlet/internal/jsonscan"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
)

// Bounds of the kubelet's answer.
const (
	maxPods        = 4096
	kubeletTimeout = 5 * time.Second
)

// Kubelet asks the kubelet for its pods. One goroutine at a time may use it.
type Kubelet struct {
	url     string
	http    *trust.Client
	timeout time.Duration
	seed    maphash.Seed
	// seen maps the hash of an object's text to what was read of it: most pods have not changed since the last question,
	// and are not read again.
	seen map[uint64]known
}

// known is one object that was read, nil when it cannot be used.
type known struct {
	pod      *Pod
	problems []string
}

// NewKubelet asks at endpoint, "https://127.0.0.1:10250". What the certificate is verified against and who we are is the
// client's business.
func NewKubelet(endpoint string, client *trust.Client) *Kubelet {
	return &Kubelet{url: strings.TrimSuffix(endpoint, "/") + "/pods", http: client, timeout: kubeletTimeout, seed: maphash.MakeSeed()}
}

// Weakness says what the way to the kubelet gives up, or that it is an old one because its files cannot be read; empty when nothing.
func (k *Kubelet) Weakness() string {
	if since, err := k.http.Unread(); err != nil {
		return "the kubelet is asked as before " + since.UTC().Format(time.RFC3339) + ": " + err.Error()
	}
	if strings.HasPrefix(k.url, "http://") {
		return "the kubelet is asked without TLS"
	}
	return k.http.Weakness()
}

// List asks once, for five seconds at most. problems are about pods that could not be read, or not in full.
func (k *Kubelet) List(ctx context.Context) (pods []*Pod, problems []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("ask the kubelet: %w", refusal(resp))
	}
	next := make(map[uint64]known, len(k.seen))
	_, err = jsonscan.List(resp.Body, MaxObject, maxPods, func(raw []byte, whole bool) error {
		if !whole {
			problems = append(problems, tooLarge(raw).problems...)
			return nil
		}
		hash := maphash.Bytes(k.seed, raw)
		entry, ok := k.seen[hash]
		if !ok {
			entry = decoded(raw)
		}
		next[hash] = entry
		problems = append(problems, entry.problems...)
		if entry.pod != nil {
			pods = append(pods, entry.pod)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubelet's pods: %w", err)
	}
	k.seen = next
	return pods, problems, nil
}

// decoded reads one object; one that cannot be used is a problem and not the end of the list.
func decoded(raw []byte) known {
	p, problems, err := Decode(raw)
	if err != nil {
		return known{problems: []string{err.Error()}}
	}
	for i, text := range problems {
		problems[i] = p.FullName() + ": " + text
	}
	return known{pod: p, problems: problems}
}

// tooLarge is an object of which there is only the beginning.
func tooLarge(head []byte) known {
	namespace, _ := metadataOf(head, "namespace")
	name, _ := metadataOf(head, "name")
	return known{problems: []string{fmt.Sprintf("%v: %.64q/%.64q: more than %d bytes, or nested deeper than %d",
		ErrPod, namespace, name, MaxObject, jsonscan.MaxDepth)}}
}

// refusal explains a status that is not OK.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	if err != nil {
		text = nil
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return errors.New("401: the token or client certificate is not accepted")
	case http.StatusForbidden:
		return errors.New("403: RBAC does not allow get on nodes/pods (nodes/proxy before Kubernetes 1.33)")
	}
	return fmt.Errorf("%s: %.200q", resp.Status, strings.TrimSpace(string(text)))
}
