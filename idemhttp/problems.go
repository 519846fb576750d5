package idemhttp

import (
	"net/http"
	"time"
)

// The problems of this package. Each function returns a new one, because Config.Render may change
// it.

func (m *Middleware) missingKey() *Problem {
	return &Problem{Type: TypeMissingKey, Title: "The header " + m.config.Header + " is missing", Status: m.config.Statuses.MissingKey,
		Detail: "Create a random key for this request, and send the same key whenever you repeat it.", SafeNewKey: true}
}

func (m *Middleware) invalidKey(detail string) *Problem {
	return &Problem{Type: TypeInvalidKey, Title: "The header " + m.config.Header + " is not one valid key",
		Status: m.config.Statuses.InvalidKey, Detail: detail, SafeNewKey: true}
}

func (m *Middleware) keyReused() *Problem {
	return &Problem{Type: TypeKeyReused, Title: "This key belongs to a different request", Status: m.config.Statuses.KeyReused,
		Detail: "Nothing was done. A new request needs a new key.", SafeNewKey: true}
}

func (m *Middleware) inProgress(after time.Duration) *Problem {
	return &Problem{Type: TypeInProgress, Title: "The first request with this key is still running",
		Status: m.config.Statuses.InProgress, Retryable: true, RetryAfter: after}
}

func (m *Middleware) forbidden() *Problem {
	return &Problem{Type: TypeForbidden, Title: "Access to this is not allowed", Status: m.config.Statuses.Forbidden}
}

func protocol() *Problem {
	return &Problem{Type: TypeProtocol, Title: "gRPC is not served here", Status: http.StatusUnsupportedMediaType,
		Detail: "Nothing was done. The service must use an interceptor for its gRPC methods."}
}

func (m *Middleware) unavailable() *Problem {
	return &Problem{Type: TypeUnavailable, Title: "The service is not available now", Status: m.config.Statuses.Unavailable,
		Detail: "Nothing was committed by this request. Repeat it, with the same key if it has one.", Retryable: true, RetryAfter: time.Second}
}

func (m *Middleware) outcomeUnknown(detail string, retryable bool) *Problem {
	p := &Problem{Type: TypeOutcomeUnknown, Title: "The outcome of this request is unknown", Status: m.config.Statuses.Unavailable,
		Detail: detail, Retryable: retryable}
	if retryable {
		p.RetryAfter = time.Second
	}
	return p
}

func (m *Middleware) bodyTooLarge() *Problem {
	return &Problem{Type: TypeBodyTooLarge, Title: "The body of the request is too large", Status: m.config.Statuses.BodyTooLarge,
		SafeNewKey: true}
}

func bodyUnreadable() *Problem {
	return &Problem{Type: TypeBodyUnreadable, Title: "The body of the request is incomplete",
		Status: http.StatusBadRequest, Retryable: true}
}

func invalidJSON() *Problem {
	return &Problem{Type: TypeInvalidJSON, Title: "The body is not one JSON document with a unique meaning",
		Status: http.StatusBadRequest, SafeNewKey: true}
}

func unrecordable() *Problem {
	return &Problem{Type: TypeUnrecordable, Title: "The answer could not be recorded, so nothing was done",
		Status: http.StatusInternalServerError, SafeNewKey: true}
}

func unreadable() *Problem {
	return &Problem{Type: TypeUnreadable, Title: "The recorded answer cannot be read now",
		Status: http.StatusInternalServerError, Detail: "The request was executed before, and nothing was done again. With a new key it would be executed twice.", Retryable: true}
}

func brokenTx() *Problem {
	return &Problem{Type: TypeBrokenTx, Title: "Internal error of this service", Status: http.StatusInternalServerError}
}

func internal() *Problem {
	return &Problem{Type: TypeInternal, Title: "Internal error of this service", Status: http.StatusInternalServerError,
		Retryable: true}
}

func getOnly() *Problem {
	return &Problem{Type: TypeGetOnly, Title: "Status can be read only with GET or HEAD",
		Status: http.StatusMethodNotAllowed, Header: http.Header{"Allow": {"GET, HEAD"}}}
}

func invalidInput() *Problem {
	return &Problem{Type: TypeInvalidJSON, Title: "The body is not valid JSON input of this operation",
		Status: http.StatusBadRequest, SafeNewKey: true}
}

func noSuchOperation() *Problem {
	return &Problem{Type: TypeNoSuchOperation, Title: "There is no such operation", Status: http.StatusNotFound}
}

func noSuchKey() *Problem {
	return &Problem{Type: TypeNoSuchKey, Title: "This key is not in use", Status: http.StatusNotFound}
}
