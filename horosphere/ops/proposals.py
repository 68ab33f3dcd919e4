def selective_search(picture):
    raise NotImplementedError
